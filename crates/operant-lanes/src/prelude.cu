/* Operations of recorded code in CUDA C. Strict mode is built with fmad=false, prec-div, prec-sqrt and without ftz: every
   operation rounds once, as on the CPU. FAST is 1 where results may differ in the last bits. */
typedef int int32_t;
typedef unsigned int uint32_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#define FN static __device__ __forceinline__
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fc00000)
#define INT32_MIN (-2147483647 - 1)

FN int32_t bits(float x) { return __float_as_int(x); }
FN float from_bits(int32_t x) { return __int_as_float(x); }
FN float add_f(float a, float b) { return a + b; }
FN float sub_f(float a, float b) { return a - b; }
FN float mul_f(float a, float b) { return a * b; }
FN float div_f(float a, float b) { return FAST ? __fdividef(a, b) : a / b; }
FN float neg_f(float a) { return -a; }
FN float mul_add_f(float a, float b, float c) { return FAST ? fmaf(a, b, c) : a * b + c; }
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
FN int32_t mul_high_i(int32_t a, int32_t b) { return (int32_t)__umulhi((uint32_t)a, (uint32_t)b); }
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
