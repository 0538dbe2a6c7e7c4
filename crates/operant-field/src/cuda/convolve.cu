/* Convolution as an implicit matrix product on Hopper's tensor cores: ROWS rows of 16 pixels by TN output channels per tile.

   Activations have a border, so the tensor copy engine brings a slab of (ROWS + k - 1) x 16 pixels x 128 bytes of channels per
   column of the kernel; its k rows are the same slab 2,048 bytes further on. One warp copies, teams of warpgroups
   multiply; with two teams one multiplies while the other writes. Weights that fit stay for all tiles of an operator; others come
   once for a pair of blocks, half of them by each. Numbers of
   two bytes have turned products, channels by 256 pixels: the tensor cores read fewer bytes, and sums of a channel are a thread's.
   Results leave with sums of each channel over 64 or 256 pixels, which `gather` adds up in their order, or which are added to whole
   numbers: sums do not depend on which block came last. */
#define ROWS_BYTES 2048
#define STAGE_ROW (64 * BYTES + 16)
#define MOST_A 8
#define MOST_B 16

struct __align__(64) Map {
  u64 words[16];
};

struct ConvArgs {
  Map x;         /* {channels, plane, column, row, image} */
  Map w;         /* {channels, plane, output, tap, operator} */
  Map to;        /* {outputs, 1, column, row, image}: y for turned products */
  u8* y;         /* [B, H, W, outputs] */
  const float* bias; /* [operators, outputs] */
  float* parts;  /* [B, parts, 2, outputs]; or [B, 2, outputs] whole numbers */
  /* Counted: 1 as parts, 2 as whole numbers; these are for norms of a channel, which take its bias away again: it is left out. */
  u32 images, side, outputs, rows_per_op, kernel, origin, chunks, tiles, blocks_n, a_slots, b_slots, resident, counted, paired;
  u32 log_tiles, log_columns, op_magic, block_magic;
  u32 passes; /* products of numbers of two planes: 3, or 2 where weights have one; else 1 */
};
static_assert(sizeof(ConvArgs) == CONV_BYTES, "as in Rust");

FN u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
FN void barrier_init(u32 at, u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory"); }
FN void barrier_expect(u32 at, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}
FN void barrier_arrive(u32 at) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory"); }
FN void barrier_wait(u32 at, u32 parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra over;\nbra again;\nover:\n}" ::"r"(at),
      "r"(parity)
      : "memory");
}
FN void copy5(u32 to, const Map* map, u32 barrier, int a, int b, int c, int d, int e) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(a), "r"(b), "r"(c), "r"(d), "r"(e)
      : "memory");
}
/* The same to this place in both blocks of a pair, each of which hears of it. */
FN void copy5_to_both(u32 to, const Map* map, u32 barrier, int a, int b, int c, int d, int e) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(a), "r"(b), "r"(c), "r"(d), "r"(e), "h"((u16)3)
      : "memory");
}
/* At the same barrier of block number `rank` of a pair. */
FN void barrier_arrive_at(u32 at, u32 rank) {
  asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\nmbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(at), "r"(rank) : "memory");
}
FN u32 rank_in_pair() {
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
FN void pair_wait() { asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory"); }
/* 128-byte rows, swizzled, groups of eight rows 1,024 bytes apart. */
FN u64 descriptor(u32 at) { return (u64)((at & 0x3ffff) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62); }
FN void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
FN void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT> FN void products_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory"); }
FN void team_wait(int id) { asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory"); }

FN void stage2(u8* at, float a, float b) {
#if KIND < 2
  *(u32*)at = pack(a, b);
#else
  *(float2*)at = make_float2(a, b);
#endif
}
FN float2 staged2(const u8* at) {
#if KIND < 2
  return unpack(*(const u32*)at);
#else
  return *(const float2*)at;
#endif
}

/* x / by, where magic is 2³² / by, rounded up, or 0 for 1: at most one too many by that. Whole divisions take longer than a tile waits. */
FN u32 divided(u32 x, u32 by, u32 magic) {
  const u32 found = __umulhi(x, magic);
  return magic ? found - (found * by > x) : x;
}

/* Which operator, image, tile, where that lies among others, and block of outputs. */
struct Place {
  u32 op, image, tile, row, column, block, weights;
};
FN Place place(const ConvArgs& a, u32 number) {
  Place p;
  /* A pair has neighbouring tiles of the same outputs. */
  const u32 odd = a.paired & number, group = divided(number >> a.paired, a.blocks_n, a.block_magic), log_groups = a.log_tiles - a.paired;
  p.block = (number >> a.paired) - group * a.blocks_n;
  p.image = group >> log_groups;
  p.tile = ((group - (p.image << log_groups)) << a.paired) + odd;
  p.row = p.tile >> a.log_columns, p.column = p.tile - (p.row << a.log_columns);
  p.op = divided(p.image, a.rows_per_op, a.op_magic);
  p.weights = p.op * a.blocks_n + p.block;
  return p;
}

/* Tiles of a block: neighbours where weights stay, so that few blocks come to a second operator. Where pairs of blocks are left over in
   the last round, from number `whole` on two of them share the outputs of a pair of tiles, if HALVES. */
struct Share {
  u32 first, end, step, whole;
};
template <bool HALVES> FN Share share(const ConvArgs& a) {
  const u32 count = a.images * a.tiles * a.blocks_n, each = count / gridDim.x, more = count - each * gridDim.x;
  if (!a.resident && HALVES && a.paired && 2 * more <= gridDim.x) return Share{blockIdx.x, count + more, gridDim.x, count - more};
  if (!a.resident) return Share{blockIdx.x, count, gridDim.x, count};
  const u32 first = blockIdx.x * each + min(blockIdx.x, more);
  return Share{first, first + each + (blockIdx.x < more), 1, count};
}
/* Of a number beyond those of whole tiles: which half of the outputs. */
FN u32 half_of(const Share& s, u32 number) { return (number - s.whole) >> 1 & 1; }
FN u32 tile_number(const Share& s, u32 number) { return number < s.whole ? number : s.whole + ((number - s.whole) >> 2 << 1) + (number & 1); }

/* Sums over an image as whole numbers of 2^-WHOLE_BITS: adding them in any order gives the same bits, so that blocks add to them at once and
   no kernel gathers parts. What is cut off is 2^-21 of the sum over 256 pixels, of results and of their squares, far below what norms add
   to variances; whatever follows a norm is far below the most, squares of 2^41 in an image. Where they are more, or no number, the sum
   stays at 2^61 or above, which makes the image NaN. */
FN void add_whole(long long* to, float sum, bool square, u32 tiles) {
  const float whole = sum * (1 << WHOLE_BITS);
  if (square && !(whole * tiles < 0x1p61f)) atomicMax(to, 1ll << 62);
  else atomicAdd((u64*)to, (u64)__float2ll_rn(whole));
}

/* Writes d[channel of 64][pixel of 256] from channel `first` on, and its sums; `stage` has room for half of the pixels: a quarter is
   written while the one before leaves; or room for all if WHOLE. TALL tiles are eight columns by 32 rows. */
template <bool TALL, bool WHOLE, bool BIASED, class Meanwhile>
FN void write_quarters(const ConvArgs& a, const Place& p, u32 first, const float (&d)[128], u8* stage, int id, u32 thread, Meanwhile meanwhile) {
#if KIND < 2
  if (first >= a.outputs) return;
  const u32 warp = thread / 32, lane = thread % 32, channel = first + warp * 16 + lane / 4;
  const float* bias = a.bias + p.op * a.outputs;
  const float add = BIASED && channel < a.outputs ? bias[channel] : 0.0f, add8 = BIASED && channel + 8 < a.outputs ? bias[channel + 8] : 0.0f;
  const u32 row = shared_address(stage) + ((lane / 16) * 8 + lane % 8) * 128 + (((warp * 2 + lane / 8 % 2) ^ (lane % 8)) << 4);
  float sums[8] = {};
#pragma unroll
  for (int round = 0; round < 4; ++round) {
    /* What was written there before has been read. */
    if (!WHOLE || round == 0) {
      if (thread == 0) asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(WHOLE ? 0 : 1) : "memory");
      team_wait(id);
    }
    const u32 quarter = (WHOLE ? round : round % 2) * 8192;
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      u32 words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* at = d + (round * 8 + j + i / 2) * 4 + i % 2 * 2;
        const float x = BIASED ? at[0] + (i % 2 ? add8 : add) : at[0], y = BIASED ? at[1] + (i % 2 ? add8 : add) : at[1];
        float* sum = sums + i / 2 * 4 + i % 2 * 2;
        sum[0] += x, sum[1] = fmaf(x, x, sum[1]);
        sum[0] += y, sum[1] = fmaf(y, y, sum[1]);
        words[i] = pack(x, y);
      }
      asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row + quarter + j * 1024), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]) : "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    meanwhile(round);
    team_wait(id);
    if (thread == 0) {
      asm volatile(
          "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];\ncp.async.bulk.commit_group;" ::"l"(&a.to),
          "r"(shared_address(stage) + quarter), "r"(first), "r"(0), "r"(p.column * (TALL ? 8 : 16)), "r"(TALL ? p.row * 32 + round * 8 : p.row * 16 + round * 4), "r"(p.image)
          : "memory");
    }
  }
  if (!a.counted) return;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sums[i] += sums[i + 4];
    sums[i] += __shfl_xor_sync(~0u, sums[i], 1);
    sums[i] += __shfl_xor_sync(~0u, sums[i], 2);
  }
  /* Each of four lanes writes one of: eight channels on or not, sum or square. */
  const u32 which = lane % 2, on = lane / 2 % 2 * 8;
  const float sum = on ? (which ? sums[3] : sums[2]) : (which ? sums[1] : sums[0]);
  if (channel + on >= a.outputs) return;
  if (BIASED) a.parts[(((u64)p.image * a.tiles + p.tile) * 2 + which) * a.outputs + channel + on] = sum;
  else add_whole((long long*)a.parts + ((u64)p.image * 2 + which) * a.outputs + channel + on, sum, which, a.tiles);
#endif
}
template <bool TALL, bool WHOLE, class Meanwhile>
FN void write_turned(const ConvArgs& a, const Place& p, u32 first, const float (&d)[128], u8* stage, int id, u32 thread, Meanwhile meanwhile) {
  if (a.counted == 2) write_quarters<TALL, WHOLE, false>(a, p, first, d, stage, id, thread, meanwhile);
  else write_quarters<TALL, WHOLE, true>(a, p, first, d, stage, id, thread, meanwhile);
}

/* Where a block's rings and barriers lie. */
struct Rings {
  u32 a_ring, b_ring, a_bytes, b_bytes, full_a, empty_a, full_b, empty_b, order;
};
/* A slot of weights may be filled again, in both blocks of a pair. */
FN void give(const ConvArgs& a, u32 barrier) {
  if (!a.paired) return barrier_arrive(barrier);
  barrier_arrive_at(barrier, 0);
  barrier_arrive_at(barrier, 1);
}

/* A tile whose products others make: what comes for it may go. */
FN void pass_on(const ConvArgs& a, const Rings& r, u32 slabs, u32& slot_a, u32& turn_a, u32& slot_b, u32& turn_b, u32 lane) {
  for (u32 slab = 0; slab < slabs; ++slab) {
    barrier_wait(r.full_a + 8 * slot_a, turn_a & 1);
    for (u32 dy = 0; dy < a.kernel; ++dy) {
      barrier_wait(r.full_b + 8 * slot_b, turn_b & 1);
      if (lane == 0) give(a, r.empty_b + 8 * slot_b);
      if (++slot_b == a.b_slots) slot_b = 0, ++turn_b;
    }
    if (lane == 0) barrier_arrive(r.empty_a + 8 * slot_a);
    if (++slot_a == a.a_slots) slot_a = 0, ++turn_a;
  }
}

/* Multiplies and writes the tiles of a team. */
template <int TN, int GROUPS, int TEAMS, bool TURNED>
FN void consume(const ConvArgs& a, const Rings& r, u8* staging, float* reduced, const Share& s, u32 slabs) {
  constexpr u32 STAGE = TURNED ? 128 * 128 : 64 * STAGE_ROW;
  const u32 k = a.kernel;
  /* The same for a warp, which the compiler sees by this: addresses of operands are then no thread's own. */
  const u32 group = __shfl_sync(~0u, threadIdx.x / 128, 0), team = group / GROUPS, half = group % GROUPS, thread = threadIdx.x % 128;
  const u32 warp = thread / 32, lane = thread % 32;
  const int id = 1 + group;
  u8* stage = staging + group * STAGE;
  float* own = reduced + group * 512;
  u32 sequence = 0, held = ~0u, visits = 0;
  u32 slot_a = 0, turn_a = 0, slot_b = 0, turn_b = 0;
  /* What another team's tile takes of the rings. */
  const u32 turns_a = slabs / a.a_slots, turns_b = slabs * k / a.b_slots, slots_a = slabs - turns_a * a.a_slots, slots_b = slabs * k - turns_b * a.b_slots;
  for (u32 number = s.first; number < s.end; number += s.step, ++sequence) {
    Place p = place(a, tile_number(s, number));
    if (number >= s.whole && half_of(s, number) != half) {
      pass_on(a, r, slabs, slot_a, turn_a, slot_b, turn_b, lane);
      continue;
    }
    if (held != p.weights) held = p.weights, ++visits;
    bool mine = sequence % TEAMS == team;
    /* Resident weights are given back when the next tile, whoever's it is, needs others. */
    bool give_back = false;
    if (a.resident) {
      u32 next = number + s.step;
      give_back = next < s.end && place(a, next).weights != p.weights;
    }
    if (mine) {
      constexpr int N = TURNED ? 256 : TN;
      float d[N / 2];
      if (a.resident) slot_b = 0, turn_b = visits - 1;
      u32 done_a = ~0u, done_b = ~0u;
      /* Teams multiply in turn: one that waited for a slot two rounds ahead would take an earlier round for it. */
      if (TEAMS > 1 && sequence > 0) barrier_wait(r.order + 8 * team, ((sequence - 1) / TEAMS) & 1);
      for (u32 slab = 0; slab < slabs; ++slab) {
        barrier_wait(r.full_a + 8 * slot_a, turn_a & 1);
        for (u32 dy = 0; dy < k; ++dy) {
          barrier_wait(r.full_b + 8 * slot_b, turn_b & 1);
          const u64 pixels = descriptor(r.a_ring + slot_a * r.a_bytes + ((TURNED ? 0 : 4 * half) + dy) * ROWS_BYTES);
          const u64 weights = descriptor(r.b_ring + slot_b * r.b_bytes + (TURNED ? half * 8192 : 0));
          const u64 left = TURNED ? weights : pixels, right = TURNED ? pixels : weights;
          products_begin();
#pragma unroll
          for (int part = 0; part < 4; ++part) multiply<N>(d, left + 2 * part, right + 2 * part, (slab | dy | part) != 0);
          products_commit();
          products_wait<1>();
          if (lane == 0) {
            if (done_b != ~0u && !a.resident) give(a, r.empty_b + 8 * done_b);
            if (done_a != ~0u) barrier_arrive(r.empty_a + 8 * done_a);
          }
          done_b = slot_b;
          done_a = dy + 1 == k ? slot_a : ~0u;
          if (++slot_b == a.b_slots && !a.resident) slot_b = 0, ++turn_b;
        }
        if (++slot_a == a.a_slots) slot_a = 0, ++turn_a;
      }
      if (TEAMS > 1 && lane == 0) barrier_arrive(r.order + 8 * ((sequence + 1) % TEAMS));
      products_wait<0>();
#pragma unroll
      for (int i = 0; i < N / 2; ++i) asm volatile("" : "+f"(d[i])::"memory");
      if (lane == 0) {
        if (!a.resident) give(a, r.empty_b + 8 * done_b);
        barrier_arrive(r.empty_a + 8 * done_a);
      }
      if (a.resident && give_back && lane == 0)
        for (u32 i = 0; i < a.b_slots; ++i) barrier_arrive(r.empty_b + 8 * i);

      if constexpr (TURNED) {
        write_turned<false, false>(a, p, p.block * TN + half * 64, d, stage, id, thread, [](int) {});
        continue;
      }
      const u32 y = p.row * 8 + 4 * half, x = p.column * 16;
      const float* bias = a.bias + p.op * a.outputs;
#pragma unroll
      for (int piece = 0; piece < TN / 64; ++piece) {
        const u32 first = p.block * TN + piece * 64;
        if (first >= a.outputs) break;
        team_wait(id);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          u32 column = j * 8 + (lane % 4) * 2;
          float2 add = first + column < a.outputs ? *(const float2*)(bias + first + column) : make_float2(0.0f, 0.0f);
          u8* at = stage + (warp * 16 + lane / 4) * STAGE_ROW + column * BYTES;
          stage2(at, d[piece * 32 + j * 4] + add.x, d[piece * 32 + j * 4 + 1] + add.y);
          stage2(at + 8 * STAGE_ROW, d[piece * 32 + j * 4 + 2] + add.x, d[piece * 32 + j * 4 + 3] + add.y);
        }
        team_wait(id);
        const u32 vectors = 4 * BYTES;
#pragma unroll
        for (u32 i = 0; i < 64 * vectors / 128; ++i) {
          u32 row = (i * 128 + thread) / vectors, vector = thread % vectors;
          u32 channel = first + vector * (16 / BYTES);
          if (channel < a.outputs) {
            u64 pixel = ((u64)p.image * a.side + y + row / 16) * a.side + x + row % 16;
            *(uint4*)(a.y + (pixel * a.outputs + channel) * BYTES) = *(const uint4*)(stage + row * STAGE_ROW + vector * 16);
          }
        }
        if (!a.counted) continue;
        float2 sum = make_float2(0.0f, 0.0f), square = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int row = 0; row < 16; ++row) {
          float2 v = staged2(stage + (warp * 16 + row) * STAGE_ROW + lane * 2 * BYTES);
          sum.x += v.x, sum.y += v.y, square.x += v.x * v.x, square.y += v.y * v.y;
        }
        ((float2*)own)[warp * 32 + lane] = sum;
        ((float2*)own)[128 + warp * 32 + lane] = square;
        team_wait(id);
        u32 which = thread / 64, channel = thread % 64;
        float total = 0.0f;
#pragma unroll
        for (int w = 0; w < 4; ++w) total += own[which * 256 + w * 64 + channel];
        if (first + channel < a.outputs) {
          u64 part = (u64)p.image * 2 * a.tiles + 2 * p.tile + half;
          a.parts[(part * 2 + which) * a.outputs + first + channel] = total;
        }
      }
    } else {
      turn_a += turns_a, turn_b += turns_b;
      if ((slot_a += slots_a) >= a.a_slots) slot_a -= a.a_slots, ++turn_a;
      if ((slot_b += slots_b) >= a.b_slots) slot_b -= a.b_slots, ++turn_b;
      if (a.resident && give_back && lane == 0)
        for (u32 i = 0; i < a.b_slots; ++i) barrier_arrive(r.empty_b + 8 * i);
    }
  }
  if (TURNED && thread == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

template <int TN, int GROUPS, int TEAMS, bool TURNED>
FN void convolve(const ConvArgs& a) {
  extern __shared__ u8 shared[];
  constexpr u32 READERS = 4 * GROUPS, ROWS = TURNED ? 16 : 8, THREADS = TEAMS * GROUPS * 128;
  constexpr u32 STAGE = TURNED ? 128 * 128 : 64 * STAGE_ROW;
  u8* room = shared + ((1024 - (shared_address(shared) & 1023)) & 1023);
  const u32 k = a.kernel, a_bytes = ROWS_BYTES * (ROWS - 1 + k), b_bytes = TN * 128, rank = a.paired ? rank_in_pair() : 0;
  const u32 a_ring = shared_address(room), b_ring = a_ring + a.a_slots * a_bytes;
  u8* staging = room + a.a_slots * a_bytes + a.b_slots * b_bytes;
  float* reduced = (float*)(staging + TEAMS * GROUPS * STAGE);
  const u32 barriers = shared_address(reduced + (TURNED ? 0 : TEAMS * 2 * 512));
  const u32 full_a = barriers, empty_a = full_a + 8 * MOST_A, full_b = empty_a + 8 * MOST_A, empty_b = full_b + 8 * MOST_B;
  const u32 order = empty_b + 8 * MOST_B;
  if (threadIdx.x == 0) {
    for (u32 i = 0; i < a.a_slots; ++i) barrier_init(full_a + 8 * i, 1), barrier_init(empty_a + 8 * i, READERS);
    u32 readers = a.resident ? READERS * TEAMS : READERS << a.paired;
    for (u32 i = 0; i < a.b_slots; ++i) barrier_init(full_b + 8 * i, 1), barrier_init(empty_b + 8 * i, readers);
    for (u32 i = 0; i < TEAMS; ++i) barrier_init(order + 8 * i, READERS);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  if (a.paired) pair_wait();
  else __syncthreads();
#if KIND >= 2
  wait_before();
  let_next();
#endif
  const Share s = share<TURNED && GROUPS == 2>(a);
  const u32 passes = KIND == 3 ? a.passes : 1, slabs = passes * a.chunks * k;

  if (threadIdx.x == THREADS) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&a.x) : "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(&a.w) : "memory");
    const auto bring_weights = [&](const Place& p, u32 slot, u32 pass, u32 chunk, u32 dx, u32 dy) {
      const int channel = chunk * (128 / BYTES), w_plane = KIND == 3 && pass == 2, tap = dy * k + dx;
      const u32 to = b_ring + slot * b_bytes, full = full_b + 8 * slot;
      barrier_expect(full, b_bytes);
      if (a.paired) copy5_to_both(to + rank * (b_bytes / 2), &a.w, full, channel, w_plane, p.block * TN + rank * (TN / 2), tap, p.op);
      else copy5(to, &a.w, full, channel, w_plane, p.block * TN, tap, p.op);
    };
    u32 ahead = 0;
#if KIND < 2
    /* The first weights come before what the kernel before makes is there; all others wait for what comes. Not shown to help with numbers
       of four bytes. */
    if (s.first < s.end) {
      const Place p = place(a, tile_number(s, s.first));
      for (u32 slab = 0; slab < slabs && ahead < a.b_slots; ++slab)
        for (u32 dy = 0; dy < k && ahead < a.b_slots; ++dy, ++ahead) bring_weights(p, ahead, slab / (a.chunks * k), slab / k % a.chunks, slab % k, dy);
    }
    wait_before();
    let_next();
#endif
    u32 slot_a = 0, turn_a = 0, slot_b = 0, turn_b = 0, held = ~0u;
    for (u32 number = s.first; number < s.end; number += s.step) {
      Place p = place(a, tile_number(s, number));
      int y = p.row * ROWS + a.origin, x = p.column * 16 + a.origin;
      bool bring = !a.resident || held != p.weights;
      held = p.weights;
      for (u32 pass = 0; pass < passes; ++pass) {
        int x_plane = KIND == 3 && pass == 1;
        for (u32 chunk = 0; chunk < a.chunks; ++chunk) {
          for (u32 dx = 0; dx < k; ++dx) {
            barrier_wait(empty_a + 8 * slot_a, (turn_a & 1) ^ 1);
            barrier_expect(full_a + 8 * slot_a, a_bytes);
            copy5(a_ring + slot_a * a_bytes, &a.x, full_a + 8 * slot_a, chunk * (128 / BYTES), x_plane, x + dx, y, p.image);
            if (++slot_a == a.a_slots) slot_a = 0, ++turn_a;
            if (!bring) continue;
            for (u32 dy = 0; dy < k; ++dy) {
              if (ahead > 0) {
                --ahead;
              } else {
                barrier_wait(empty_b + 8 * slot_b, (turn_b & 1) ^ 1);
                bring_weights(p, slot_b, pass, chunk, dx, dy);
              }
              if (++slot_b == a.b_slots) slot_b = 0, ++turn_b;
            }
          }
        }
      }
    }
  } else if (threadIdx.x < THREADS) {
    consume<TN, GROUPS, TEAMS, TURNED>(a, Rings{a_ring, b_ring, a_bytes, b_bytes, full_a, empty_a, full_b, empty_b, order}, staging, reduced, s, slabs);
  }
  /* Neither of a pair leaves while the other may still write to it. */
  if (a.paired) {
    __syncwarp();
    pair_wait();
  }
}

#if KIND < 2
extern "C" __global__ void __launch_bounds__(288, 1) turned_64(const __grid_constant__ ConvArgs a) { convolve<64, 1, 2, true>(a); }
extern "C" __global__ void __launch_bounds__(288, 1) turned_128(const __grid_constant__ ConvArgs a) { convolve<128, 2, 1, true>(a); }
#else
extern "C" __global__ void __launch_bounds__(544, 1) convolve_64(const __grid_constant__ ConvArgs a) { convolve<64, 2, 2, false>(a); }
extern "C" __global__ void __launch_bounds__(544, 1) convolve_128(const __grid_constant__ ConvArgs a) { convolve<128, 2, 2, false>(a); }
extern "C" __global__ void __launch_bounds__(288, 1) convolve_256(const __grid_constant__ ConvArgs a) { convolve<256, 2, 1, false>(a); }
#endif

struct GatherArgs {
  const float* parts;  /* [B, parts, 2, padded] */
  const float* affine; /* [operators, 2, padded] */
  double* sums;        /* [B, 2, padded], where channels are normalised together; else none */
  float* norm;         /* [B, 2, padded]: scales and shifts */
  u32 padded, parts_per_image, channels, norm_channels, rows_per_op;
  float share; /* 1 / numbers that a mean is of */
};
static_assert(sizeof(GatherArgs) == GATHER_BYTES, "as in Rust");

/* Scale and shift of a channel by sums over what it is normalised with. */
FN void normed(const GatherArgs& a, u32 image, u32 c, double sum, double square) {
  const float* weight = a.affine + image / a.rows_per_op * 2 * a.padded;
  float* to = a.norm + (u64)image * 2 * a.padded;
  double mean = sum * a.share, variance = fmax(square * a.share - mean * mean, 0.0);
  /* Channels that only fill up have weight 0. */
  float s = weight[c] * (1.0f / sqrtf((float)variance + 1e-5f));
  to[c] = s, to[a.padded + c] = weight[a.padded + c] - (float)mean * s;
}

/* Warps that share an image's parts, of which numbers of four bytes have four times as many. */
#define SLICES (KIND < 2 ? 8 : 32)
/* Sums of an image over its parts, 16 channels per block; an order of additions that no other image changes. */
extern "C" __global__ void __launch_bounds__(32 * SLICES) gather(const __grid_constant__ GatherArgs a) {
  __shared__ float slices[SLICES][33];
  __shared__ double totals[32];
  const u32 blocks = a.padded / 16, image = blockIdx.x / blocks, first = blockIdx.x % blocks * 16;
  const u32 column = threadIdx.x % 32, slice = threadIdx.x / 32, channel = first + column % 16;
  const float* from = a.parts + ((u64)image * a.parts_per_image * 2 + column / 16) * a.padded + channel;
  float total = 0.0f;
  wait_before();
  let_next();
#pragma unroll 8
  for (u32 part = slice; part < a.parts_per_image; part += SLICES) total += from[(u64)part * 2 * a.padded];
  slices[slice][column] = total;
  __syncthreads();
  if (slice == 0) {
    double sum = 0.0;
#pragma unroll
    for (int i = 0; i < SLICES; ++i) sum += (double)slices[i][column];
    if (a.sums) a.sums[((u64)image * 2 + column / 16) * a.padded + channel] = sum;
    totals[column] = sum;
    __syncwarp();
    if (column < 16 && !a.sums) normed(a, image, channel, totals[column], totals[16 + column]);
  }
}

/* The same of channels that are normalised together: an image per block. */
extern "C" __global__ void __launch_bounds__(256) join(const __grid_constant__ GatherArgs a) {
  const double* sums = a.sums + (u64)blockIdx.x * 2 * a.padded;
  for (u32 c = threadIdx.x; c < a.padded; c += 256) {
    double sum = 0.0, square = 0.0;
    const u32 first = min(c, a.channels - 1) / a.norm_channels * a.norm_channels;
    for (u32 i = first; i < first + a.norm_channels; ++i) sum += sums[i], square += sums[a.padded + i];
    normed(a, blockIdx.x, c, sum, square);
  }
}
