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

/* The same from any number of channels to more than 64: tiles of 128 outputs, a warpgroup each for 64 of them, whose weights come by taps,
   half of them by each of a pair of blocks. A slab comes for nine taps, so that a third of the bytes come from the second cache that
   a slab for each column of the kernel takes: what moves them takes power that tensor cores want. */
#define FAR_SLABS 2
#define FAR_SLOTS 6
#define FAR_TAP (128 * 128)
#define FAR_STAGE (128 * 128)

extern "C" __global__ void __launch_bounds__(288, 1) tall_128(const __grid_constant__ ConvArgs a) {
  extern __shared__ u8 shared[];
  u8* room = shared + ((1024 - (shared_address(shared) & 1023)) & 1023);
  u8* staging = room + FAR_SLABS * TALL_SLAB + FAR_SLOTS * FAR_TAP;
  const u32 slabs = shared_address(room), weights = slabs + FAR_SLABS * TALL_SLAB, rank = rank_in_pair();
  const u32 full_a = shared_address(staging + 2 * FAR_STAGE), empty_a = full_a + 8 * FAR_SLABS, full_b = empty_a + 8 * FAR_SLABS, empty_b = full_b + 8 * FAR_SLOTS;
  if (threadIdx.x == 0) {
    for (u32 i = 0; i < FAR_SLABS; ++i) barrier_init(full_a + 8 * i, 1), barrier_init(empty_a + 8 * i, 8);
    for (u32 i = 0; i < FAR_SLOTS; ++i) barrier_init(full_b + 8 * i, 1), barrier_init(empty_b + 8 * i, 16);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  pair_wait();
  const Share s = share<true>(a);
  u32 slot_a = 0, turn_a = 0, slot_b = 0, turn_b = 0;
  if (threadIdx.x == 256) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&a.x) : "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(&a.w) : "memory");
    const auto bring_weights = [&](const Place& p, u32 slot, u32 chunk, u32 dx, u32 dy) {
      barrier_expect(full_b + 8 * slot, FAR_TAP);
      copy5_to_both(weights + slot * FAR_TAP + rank * (FAR_TAP / 2), &a.w, full_b + 8 * slot, chunk * 64, 0, p.block * 128 + rank * 64, dy * 3 + dx, p.op);
    };
    /* The first weights come before what the kernel before makes is there. */
    u32 ahead = 0;
    if (s.first < s.end)
      for (const Place p = place(a, tile_number(s, s.first)); ahead < FAR_SLOTS; ++ahead) bring_weights(p, ahead, 0, ahead / 3, ahead % 3);
    wait_before();
    let_next();
    for (u32 number = s.first; number < s.end; number += s.step) {
      const Place p = place(a, tile_number(s, number));
      for (u32 chunk = 0; chunk < a.chunks; ++chunk) {
        barrier_wait(empty_a + 8 * slot_a, (turn_a & 1) ^ 1);
        barrier_expect(full_a + 8 * slot_a, TALL_PIXELS);
        copy5(slabs + slot_a * TALL_SLAB, &a.x, full_a + 8 * slot_a, chunk * 64, 0, p.column * 8 + a.origin, p.row * 32 + a.origin, p.image);
        if (++slot_a == FAR_SLABS) slot_a = 0, ++turn_a;
        for (u32 dx = 0; dx < 3; ++dx)
          for (u32 dy = 0; dy < 3; ++dy) {
            if (ahead > 0) {
              --ahead;
            } else {
              barrier_wait(empty_b + 8 * slot_b, (turn_b & 1) ^ 1);
              bring_weights(p, slot_b, chunk, dx, dy);
            }
            if (++slot_b == FAR_SLOTS) slot_b = 0, ++turn_b;
          }
      }
    }
  } else if (threadIdx.x < 256) {
    /* The same for a warp, which the compiler sees by this: addresses of operands are then no thread's own. */
    const u32 half = __shfl_sync(~0u, threadIdx.x / 128, 0), thread = threadIdx.x % 128, lane = thread % 32;
    /* A slot of weights may be filled again, in both blocks. */
    const auto give = [&](u32 barrier) { barrier_arrive_at(barrier, 0), barrier_arrive_at(barrier, 1); };
    for (u32 number = s.first; number < s.end; number += s.step) {
      if (number >= s.whole && half_of(s, number) != half) {
        /* Others make these products: what comes for them may go. */
        for (u32 chunk = 0; chunk < a.chunks; ++chunk) {
          barrier_wait(full_a + 8 * slot_a, turn_a & 1);
          for (u32 tap = 0; tap < 9; ++tap) {
            barrier_wait(full_b + 8 * slot_b, turn_b & 1);
            if (lane == 0) give(empty_b + 8 * slot_b);
            if (++slot_b == FAR_SLOTS) slot_b = 0, ++turn_b;
          }
          if (lane == 0) barrier_arrive(empty_a + 8 * slot_a);
          if (++slot_a == FAR_SLABS) slot_a = 0, ++turn_a;
        }
        continue;
      }
      const Place p = place(a, tile_number(s, number));
      float d[128];
      /* What the products before the last ones were of. */
      u32 done_a = 0, done_b = 0;
#pragma unroll 1
      for (u32 chunk = 0; chunk < a.chunks; ++chunk) {
        barrier_wait(full_a + 8 * slot_a, turn_a & 1);
        const u64 pixels = descriptor(slabs + slot_a * TALL_SLAB) + (16ull << 32);
#pragma unroll
        for (int tap = 0; tap < 9; ++tap) {
          barrier_wait(full_b + 8 * slot_b, turn_b & 1);
          const u64 left = descriptor(weights + slot_b * FAR_TAP + half * (FAR_TAP / 2));
          products_begin();
#pragma unroll
          for (int part = 0; part < 4; ++part)
            multiply<256>(d, left + 2 * part, pixels + (tap % 3 * 10 + tap / 3) * 8 + 2 * part, tap + part > 0 ? 1 : chunk);
          products_commit();
          products_wait<1>();
          if (lane == 0) {
            if (tap > 0 || chunk > 0) give(done_b);
            if (tap == 0 && chunk > 0) barrier_arrive(done_a);
          }
          done_b = empty_b + 8 * slot_b;
          if (++slot_b == FAR_SLOTS) slot_b = 0, ++turn_b;
        }
        done_a = empty_a + 8 * slot_a;
        if (++slot_a == FAR_SLABS) slot_a = 0, ++turn_a;
      }
      products_wait<0>();
#pragma unroll
      for (int i = 0; i < 128; ++i) asm volatile("" : "+f"(d[i])::"memory");
      if (lane == 0) give(done_b), barrier_arrive(done_a);
      write_turned<true, false>(a, p, p.block * 128 + half * 64, d, staging + half * FAR_STAGE, 1 + half, thread, [](int) {});
    }
    if (thread == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
  /* Neither of a pair leaves while the other may still write to it. */
  __syncwarp();
  pair_wait();
}
#endif
