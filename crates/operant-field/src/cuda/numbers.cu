/* Numbers of an operator's tensors on a GPU. KIND: 0 bf16, 1 f16, 2 tf32, 3 f32 as the sum of two tf32 (planes), multiplied
   in three products. A pixel of an activation is [PLANES][padded channels]; one of a convolution's result is [padded channels]. */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
#define FN static __device__ __forceinline__
/* A kernel may begin before the one before it ends: what that one makes is there behind `wait_before`. The next may begin once every
   block has called `let_next`, which comes behind `wait_before`: what lies two kernels back is there from the beginning. */
FN void wait_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
FN void let_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
#if KIND < 2
#define BYTES 2
#else
#define BYTES 4
#endif
#define PLANES (KIND == 3 ? 2 : 1)
/* Parts that a number of a first field is split into along channels. */
#define SPLIT (KIND == 3 ? 1 : 2)

FN float round_tf32(float x) {
  u32 bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return __uint_as_float(bits);
}

/* Two numbers in a word, the first in the low half. */
FN u32 pack(float low, float high) {
  u32 word;
#if KIND == 1
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
#else
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
#endif
  return word;
}

FN float2 unpack(u32 word) {
#if KIND == 1
  float low, high;
  asm("{.reg .f16 a, b;\n mov.b32 {a, b}, %2;\n cvt.f32.f16 %0, a;\n cvt.f32.f16 %1, b;}" : "=f"(low), "=f"(high) : "r"(word));
  return make_float2(low, high);
#else
  return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
#endif
}

/* The number as products see it. */
FN float as_stored(float x) {
#if KIND < 2
  return unpack(pack(x, 0.0f)).x;
#else
  return round_tf32(x);
#endif
}

/* Eight numbers of a convolution's result, as they lie in memory. */
struct Raw {
  uint4 words[BYTES / 2];
};
FN Raw raw8(const u8* from) {
  Raw raw;
#pragma unroll
  for (int i = 0; i < BYTES / 2; ++i) raw.words[i] = ((const uint4*)from)[i];
  return raw;
}
FN void unpack8(const Raw& raw, float* x) {
#if KIND < 2
  uint4 words = raw.words[0];
  float2 a = unpack(words.x), b = unpack(words.y), c = unpack(words.z), d = unpack(words.w);
  x[0] = a.x, x[1] = a.y, x[2] = b.x, x[3] = b.y, x[4] = c.x, x[5] = c.y, x[6] = d.x, x[7] = d.y;
#else
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    x[4 * i] = __uint_as_float(raw.words[i].x), x[4 * i + 1] = __uint_as_float(raw.words[i].y);
    x[4 * i + 2] = __uint_as_float(raw.words[i].z), x[4 * i + 3] = __uint_as_float(raw.words[i].w);
  }
#endif
}
FN void read8(const u8* from, float* x) { unpack8(raw8(from), x); }

/* Eight numbers of an activation whose planes lie `plane` bytes apart. */
FN void read8_planes(const u8* from, u32 plane, float* x) {
  read8(from, x);
#if KIND == 3
  float low[8];
  read8(from + plane, low);
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] += low[i];
#endif
}

/* Eight numbers as they are stored: one or two planes of 16-byte words. */
struct Packed {
  uint4 words[PLANES * BYTES / 2];
};

FN Packed pack8(const float* x) {
  Packed p;
#if KIND < 2
  p.words[0] = make_uint4(pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7]));
#else
  u32 high[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) high[i] = __float_as_uint(round_tf32(x[i]));
  p.words[0] = make_uint4(high[0], high[1], high[2], high[3]);
  p.words[1] = make_uint4(high[4], high[5], high[6], high[7]);
#if KIND == 3
  u32 low[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) low[i] = __float_as_uint(round_tf32(x[i] - __uint_as_float(high[i])));
  p.words[2] = make_uint4(low[0], low[1], low[2], low[3]);
  p.words[3] = make_uint4(low[4], low[5], low[6], low[7]);
#endif
#endif
  return p;
}

FN void write8(u8* to, u32 plane, const Packed& p) {
#pragma unroll
  for (int i = 0; i < PLANES * BYTES / 2; ++i) {
    int of_plane = i / (BYTES / 2);
    *(uint4*)(to + of_plane * plane + (i % (BYTES / 2)) * 16) = p.words[i];
  }
}
