/* Operations of recorded code. Strict mode: build without floating-point contraction (-ffp-contract=off, fmad=false). */
#include <math.h>
#include <stdint.h>
#include <string.h>
#define FN static inline

FN int32_t bits(float x) { int32_t y; memcpy(&y, &x, 4); return y; }
FN float from_bits(int32_t x) { float y; memcpy(&y, &x, 4); return y; }
FN float add_f(float a, float b) { return a + b; }
FN float sub_f(float a, float b) { return a - b; }
FN float mul_f(float a, float b) { return a * b; }
FN float div_f(float a, float b) { return a / b; }
FN float neg_f(float a) { return -a; }
FN float mul_add_f(float a, float b, float c) { return a * b + c; }
FN float min_f(float a, float b) { return a < b ? a : b; }
FN float max_f(float a, float b) { return a > b ? a : b; }
FN float abs_f(float a) { return fabsf(a); }
FN float sqrt_f(float a) { return sqrtf(a); }
FN float floor_f(float a) { return floorf(a); }
FN float round_f(float a) { return rintf(a); }
FN int lt_f(float a, float b) { return a < b; }
FN int le_f(float a, float b) { return a <= b; }
FN int eq_f(float a, float b) { return a == b; }
FN int32_t to_int(float a) { return a >= -2147483648.0f && a < 2147483648.0f ? (int32_t)a : INT32_MIN; }
FN int32_t add_i(int32_t a, int32_t b) { return (int32_t)((uint32_t)a + (uint32_t)b); }
FN int32_t sub_i(int32_t a, int32_t b) { return (int32_t)((uint32_t)a - (uint32_t)b); }
FN int32_t mul_i(int32_t a, int32_t b) { return (int32_t)((uint32_t)a * (uint32_t)b); }
FN int32_t mul_high_i(int32_t a, int32_t b) { return (int32_t)((uint64_t)(uint32_t)a * (uint32_t)b >> 32); }
FN int32_t and_i(int32_t a, int32_t b) { return a & b; }
FN int32_t or_i(int32_t a, int32_t b) { return a | b; }
FN int32_t xor_i(int32_t a, int32_t b) { return a ^ b; }
FN int32_t shl_i(int32_t a, int32_t n) { return (int32_t)((uint32_t)a << n); }
FN int32_t shr_i(int32_t a, int32_t n) { return (int32_t)((uint32_t)a >> n); }
FN int32_t sar_i(int32_t a, int32_t n) { return a >> n; }
FN int eq_i(int32_t a, int32_t b) { return a == b; }
FN int lt_i(int32_t a, int32_t b) { return a < b; }
FN float to_float(int32_t a) { return (float)a; }
FN uint32_t index_i(int32_t a, uint32_t last) { return (uint32_t)a < last ? (uint32_t)a : last; }
FN int and_m(int a, int b) { return a & b; }
FN int or_m(int a, int b) { return a | b; }
FN int xor_m(int a, int b) { return a ^ b; }
FN int not_m(int a) { return !a; }
FN float select_f(int m, float a, float b) { return m ? a : b; }
FN int32_t select_i(int m, int32_t a, int32_t b) { return m ? a : b; }
