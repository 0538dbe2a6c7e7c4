/* The first convolution, of 3x3 taps from at most three channels of the field to at most 64, for numbers of two bytes: a pixel's
   neighbourhood, its numbers in two parts that add up to them, is one row of an operand, made in shared memory where it is multiplied. */
#if KIND < 2
#define STEM_SLAB (256 * 128)
#define STEM_WEIGHTS (64 * 128)
#define STEM_STAGE (256 * 128)
#define STEM_TEAMS 3

struct StemArgs {
  ConvArgs c; /* its x is not read */
  const float* state; /* [B, H, W, field channels] */
  u32* clock;
  u32 field_channels, unused[11];
};
static_assert(sizeof(StemArgs) == STEM_BYTES, "as in Rust");

/* A pixel's neighbourhood. */
template <int C> FN void read_around(const StemArgs& s, const Place& p, u32 pixel, float* v) {
  const u32 side = s.c.side, y = p.row * 16 + pixel / 16 + side - 1, x = p.column * 16 + pixel % 16 + side - 1;
  const float* image = s.state + (u64)p.image * side * side * C;
#pragma unroll
  for (u32 tap = 0; tap < 9; ++tap) {
    const float* at = image + (((y + tap / 3) & (side - 1)) * side + ((x + tap % 3) & (side - 1))) * C;
#pragma unroll
    for (u32 c = 0; c < C; ++c) v[tap * C + c] = at[c];
  }
}
/* As a row of 128 bytes, swizzled as the copy engine would. */
template <int C> FN void put_row(const float* v, u8* slab, u32 pixel) {
  float both[64];
#pragma unroll
  for (u32 i = 0; i < 64; ++i) both[i] = i < 9 * C ? v[i] : i < 18 * C ? v[i - 9 * C] - as_stored(v[i - 9 * C]) : 0.0f;
#pragma unroll
  for (u32 i = 0; i < 8; ++i) *(uint4*)(slab + pixel * 128 + ((i ^ pixel % 8) << 4)) = pack8(both + i * 8).words[0];
}

/* Teams of a warpgroup, each with tiles of its own. Time goes on by one. */
template <int C> FN void stem_tiles(const StemArgs& s, u64* arrived) {
  extern __shared__ u8 shared[];
  const ConvArgs& a = s.c;
  const u32 team = __shfl_sync(~0u, threadIdx.x / 128, 0), thread = threadIdx.x % 128, full = shared_address(arrived + team);
  u8* room = shared + ((1024 - (shared_address(shared) & 1023)) & 1023);
  u8 *slab = room + team * STEM_SLAB, *weights = room + STEM_TEAMS * STEM_SLAB + team * STEM_WEIGHTS;
  u8* stage = room + STEM_TEAMS * (STEM_SLAB + STEM_WEIGHTS) + team * STEM_STAGE;
  if (thread == 0) {
    barrier_init(full, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  const u32 count = a.images * a.tiles, step = STEM_TEAMS * gridDim.x;
  u32 held = ~0u, visits = 0, number = team * gridDim.x + blockIdx.x;
  if (number >= count) return;
  Place p = place(a, number);
  /* Two pixels of a thread; the next tile's first one comes while this one's results leave. */
  float v[9 * C];
  read_around<C>(s, p, thread, v);
#pragma unroll 1
  for (; number < count; number += step) {
    const bool fresh = held != p.weights;
    if (fresh && thread == 0) {
      barrier_expect(full, STEM_WEIGHTS);
      copy5(shared_address(weights), &a.w, full, 0, 0, 0, 0, p.weights);
    }
    held = p.weights;
    float w[9 * C];
    read_around<C>(s, p, thread + 128, w);
    put_row<C>(v, slab, thread), put_row<C>(w, slab, thread + 128);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    team_wait(1 + team);
    if (fresh) barrier_wait(full, visits++ & 1);
    __syncwarp();
    float d[128];
    const u64 left = descriptor(shared_address(weights)), right = descriptor(shared_address(slab));
    products_begin();
#pragma unroll
    for (int part = 0; part < 4; ++part) multiply<256>(d, left + 2 * part, right + 2 * part, part != 0);
    products_commit();
    products_wait<0>();
#pragma unroll
    for (int i = 0; i < 128; ++i) asm volatile("" : "+f"(d[i])::"memory");
    const Place next = place(a, min(number + step, count - 1));
    write_quarters<false, true, true>(a, p, 0, d, stage, 1 + team, thread, [&](int round) {
      if (round == 2) read_around<C>(s, next, thread, v);
    });
    p = next;
  }
  if (thread == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

extern "C" __global__ void __launch_bounds__(128 * STEM_TEAMS, 1) stem(const __grid_constant__ StemArgs s) {
  __shared__ __align__(8) u64 arrived[STEM_TEAMS];
  let_next();
  if (threadIdx.x == 0 && blockIdx.x == 0) *s.clock += 1;
  switch (s.field_channels) {
    case 1: stem_tiles<1>(s, arrived); break;
    case 2: stem_tiles<2>(s, arrived); break;
    default: stem_tiles<3>(s, arrived);
  }
}
#endif
