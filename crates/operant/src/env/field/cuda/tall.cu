/* Convolutions of 3x3 taps from at most 64 channels to at most 64, for numbers of two bytes: a tile is 32 rows of eight pixels, which
   come once with those around them. A tap is then the same slab some pixels further on: operands are swizzled by their addresses, and
   groups of eight pixels may lie any distance apart. Weights stay; two teams take turns, one multiplies while the other writes. */
#if KIND < 2
#define TALL_PIXELS (34 * 10 * 128)
#define TALL_SLAB (43 << 10)
#define TALL_TAP (64 * 128)
#define TALL_STAGE (256 * 128)

extern "C" __global__ void __launch_bounds__(288, 1) tall(const __grid_constant__ ConvArgs a) {
  extern __shared__ u8 shared[];
  u8* room = shared + ((1024 - (shared_address(shared) & 1023)) & 1023);
  u8* staging = room + 2 * TALL_SLAB + 9 * TALL_TAP;
  const u32 slabs = shared_address(room), weights = slabs + 2 * TALL_SLAB;
  /* Of each team: its slab has come, may come, and its turn; weights have come and may come. */
  const u32 full = shared_address(staging + 2 * TALL_STAGE), empty = full + 16, order = full + 32, weights_full = full + 48, weights_empty = full + 56;
  if (threadIdx.x == 0) {
    for (u32 i = 0; i < 2; ++i) barrier_init(full + 8 * i, 1), barrier_init(empty + 8 * i, 4), barrier_init(order + 8 * i, 4);
    barrier_init(weights_full, 1), barrier_init(weights_empty, 8);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  const Share s = share<false>(a);
  u32 sequence = 0, held = ~0u, visits = 0;
  if (threadIdx.x == 256) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&a.x) : "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(&a.w) : "memory");
    const auto bring_weights = [&](u32 op) {
      barrier_expect(weights_full, 9 * TALL_TAP);
      for (u32 dx = 0; dx < 3; ++dx)
        for (u32 dy = 0; dy < 3; ++dy) copy5(weights + (dx * 3 + dy) * TALL_TAP, &a.w, weights_full, 0, 0, 0, dy * 3 + dx, op);
    };
    /* The first weights come before what the kernel before makes is there. */
    if (s.first < s.end) {
      const Place p = place(a, s.first);
      held = p.weights, visits = 1;
      bring_weights(p.op);
    }
    wait_before();
    let_next();
    for (u32 number = s.first; number < s.end; ++number, ++sequence) {
      const Place p = place(a, number);
      const u32 team = sequence & 1;
      barrier_wait(empty + 8 * team, (sequence >> 1 & 1) ^ 1);
      barrier_expect(full + 8 * team, TALL_PIXELS);
      copy5(slabs + team * TALL_SLAB, &a.x, full + 8 * team, 0, 0, p.column * 8 + a.origin, p.row * 32 + a.origin, p.image);
      if (held == p.weights) continue;
      held = p.weights;
      barrier_wait(weights_empty, (visits++ & 1) ^ 1);
      bring_weights(p.op);
    }
    return;
  }
  if (threadIdx.x > 256) return;
  /* The same for a warp, which the compiler sees by this: addresses of operands are then no thread's own. */
  const u32 team = __shfl_sync(~0u, threadIdx.x / 128, 0), thread = threadIdx.x % 128, lane = thread % 32;
  for (u32 number = s.first; number < s.end; ++number, ++sequence) {
    const Place p = place(a, number);
    const bool fresh = held != p.weights, last = number + 1 < s.end && place(a, number + 1).weights != p.weights;
    held = p.weights;
    visits += fresh;
    if ((sequence & 1) == team) {
      float d[128];
      if (sequence > 0) barrier_wait(order + 8 * team, (sequence - 1) >> 1 & 1);
      barrier_wait(weights_full, (visits - 1) & 1);
      barrier_wait(full + 8 * team, sequence >> 1 & 1);
      const u64 left = descriptor(weights);
      /* Groups of eight pixels ten pixels apart. */
      const u64 right = descriptor(slabs + team * TALL_SLAB) + (16ull << 32);
      products_begin();
#pragma unroll
      for (int tap = 0; tap < 9; ++tap)
#pragma unroll
        for (int part = 0; part < 4; ++part)
          multiply<256>(d, left + tap * (TALL_TAP / 16) + 2 * part, right + (tap % 3 * 10 + tap / 3) * 8 + 2 * part, tap + part > 0);
      products_commit();
      if (lane == 0) barrier_arrive(order + 8 * (team ^ 1));
      products_wait<0>();
#pragma unroll
      for (int i = 0; i < 128; ++i) asm volatile("" : "+f"(d[i])::"memory");
      if (lane == 0) {
        barrier_arrive(empty + 8 * team);
        if (last) barrier_arrive(weights_empty);
      }
      write_turned<true, true>(a, p, 0, d, staging + team * TALL_STAGE, 1 + team, thread, [](int) {});
    } else if (last && lane == 0) {
      barrier_arrive(weights_empty);
    }
  }
  if (thread == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
#endif
