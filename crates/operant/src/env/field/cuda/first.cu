/* The first convolution with what follows it, for instance norm: of 3x3 taps from at most three channels of the field to 64, for
   numbers of two bytes. Its results are sums of a field's numbers, so their means and variances follow from those of the field and of
   products of its numbers at most two pixels apart (`survey`), before any result is made: norm, activation and dropout need no
   pass of their own (`first`). */
#if KIND < 2
#define SURVEYORS 8
#define SURVEY_THREADS 256
#define FIRST_SLOTS 4
#define FIRST_ROW (64 * 64)
#define FIRST_WEIGHTS (3 * 64 * 64)
#define FIRST_STAGE (16 * 128)

struct SurveyArgs {
  const float* state;  /* [B, H, W, field channels] */
  u32* words;          /* [B, H + 2, W + 4, 4]: a number's two parts, the field's border repeated; what only fills up is 0 */
  const float* pairs;  /* [operators, 13 pairs of pixels x channels x channels + channels, 64]: sums of products of weights; of weights */
  const float* affine; /* [operators, 2, 64] */
  float* norm;         /* [B, 2, 64]: scales and shifts */
  u32* clock;
  u32 side, log_side, field_channels, rows_per_op;
};
static_assert(sizeof(SurveyArgs) == SURVEY_BYTES, "as in Rust");

FN float remote(const float* at, u32 rank) {
  float x;
  asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %1, %2;\nld.shared::cluster.f32 %0, [there];\n}" : "=f"(x) : "r"(shared_address(at)), "r"(rank) : "memory");
  return x;
}
FN void copy_bytes(u32 to, const void* from, u32 bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

struct Survey {
  float parts[128];
  double totals[128], shares[8][8];
  u64 come;
};

/* A cluster takes an image, each block of it some rows: they are written in two parts, and products of pairs of numbers are added up.
   Numbers are taken from near their mean, that of 32 pixels on the diagonal: little cancels then, and what is taken away would be by
   the norm. Pairs: a pixel with itself and the two to its right, and with five of each of the next two rows. They are products of
   [other pixel's channel and part][pixel] by [pixel][channel and part], or by ones for sums; words have a number of a row of the
   block's upper half and of its lower half, so that other pixels are words elsewhere. */
template <int C> FN void survey_rows(const SurveyArgs& a, Survey& s) {
  extern __shared__ __align__(128) u8 shared[];
  constexpr u32 PAIRS = 13 * C * C, COUNT = PAIRS + C, TILES = (26 * C + 15) / 16;
  const u32 side = a.side, rows = side / SURVEYORS, half = rows / 2, rank = blockIdx.x % SURVEYORS, image = blockIdx.x / SURVEYORS;
  const u32 thread = threadIdx.x, lane = thread % 32, warp = __shfl_sync(~0u, thread / 32, 0), come = shared_address(&s.come);
  const u32 wide = side + 8, plane = (half + 2) * wide;
  const float* field = a.state + (u64)image * side * side * C;
  float* raw = (float*)shared;                     /* [rows + 2][side][C] */
  u32* band = (u32*)(raw + (rows + 2) * side * C); /* [C][part][half + 2][wide], two columns to each side */
  if (thread == 0) {
    barrier_init(come, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    barrier_expect(come, (rows + 2) * side * C * 4);
    copy_bytes(shared_address(raw), field + rank * rows * side * C, rows * side * C * 4, come);
    copy_bytes(shared_address(raw + rows * side * C), field + ((rank + 1) % SURVEYORS) * rows * side * C, 2 * side * C * 4, come);
  }
  /* Every warp by itself, the same for all of an image. */
  const u32 on = (lane << a.log_side) / 32;
  float near[C];
#pragma unroll
  for (int c = 0; c < C; ++c) near[c] = field[(on * side + on) * C + c];
#pragma unroll
  for (int c = 0; c < C; ++c) {
#pragma unroll
    for (u32 step = 16; step > 0; step /= 2) near[c] += __shfl_xor_sync(~0u, near[c], step);
    near[c] *= 1.0f / 32;
  }
  __syncthreads();
  barrier_wait(come, 0);
  /* A thread has some rows of a column. */
  const u32 x = thread & (side - 1), step = SURVEY_THREADS >> a.log_side, pitch = side + 4;
  const int beside = x < 2 ? (int)side : x >= side - 2 ? -(int)side : 0, right = x == 0 || x == side - 1 ? beside : 0;
  uint4* words = (uint4*)a.words + ((u64)image * (side + 2) + rank * rows + 1) * pitch + x + 1;
#pragma unroll 1
  for (u32 y = thread >> a.log_side; y < half + 2; y += step) {
    u32* at = band + y * wide + x + 2;
    const float *from = raw + (y * side + x) * C, *below = from + half * side * C;
    u32 upper[4] = {}, lower[4] = {};
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const float v = from[c] - near[c], w = below[c] - near[c];
      const u32 large = pack(v, w);
      const float2 stored = unpack(large);
      const u32 small = pack(v - stored.x, w - stored.y);
      at[2 * c * plane] = large, at[(2 * c + 1) * plane] = small;
      if (beside) at[(int)(2 * c * plane) + beside] = large, at[(int)((2 * c + 1) * plane) + beside] = small;
      upper[c] = __byte_perm(large, small, 0x5410), lower[c] = __byte_perm(large, small, 0x7632);
    }
    if (y >= half) continue;
    const u32 row = rank * rows + y;
    const uint4 up = make_uint4(upper[0], upper[1], upper[2], upper[3]), low = make_uint4(lower[0], lower[1], lower[2], lower[3]);
    uint4 *to = words + y * pitch, *under = to + half * pitch;
    *to = up, *under = low;
    if (right) to[right] = up, under[right] = low;
    /* The border repeats the field from its other side. */
    if (row == 0) {
      to += side * pitch, *to = up;
      if (right) to[right] = up;
    }
    if (row + half == side - 1) {
      under -= side * pitch, *under = low;
      if (right) under[right] = low;
    }
  }
  __syncthreads();
  const u32 group = lane / 4, four = lane % 4;
  u32 from[TILES][2];
#pragma unroll
  for (int i = 0; i < TILES * 2; ++i) {
    const u32 m = min(i * 8 + group, 26 * C - 1), pair = m % 13 + 2, down = pair / 5, across = pair % 5;
    from[i / 2][i % 2] = m / 13 * plane + down * wide + across + four;
  }
  const u32 own = min(group, 2 * C - 1) * plane + four + 2;
  const u32 ones = KIND == 1 ? 0x3c003c00u : 0x3f803f80u;
  float d[TILES][4] = {};
  /* Eight columns of a row of words at once, four times. */
#pragma unroll 1
  for (u32 work = warp; work < half * side / 32; work += SURVEY_THREADS / 32) {
    const u32 y = work >> (a.log_side - 5), offset = y * wide + (work & (side / 32 - 1)) * 32;
    const u32 *at[TILES][2], *mine = band + own + offset;
#pragma unroll
    for (int i = 0; i < TILES * 2; ++i) at[i / 2][i % 2] = band + from[i / 2][i % 2] + offset;
#pragma unroll
    for (int turn = 0; turn < 4; ++turn) {
      u32 b[2] = {ones, ones};
      if (group < 2 * C) b[0] = mine[turn * 8], b[1] = mine[turn * 8 + 4];
      if (group == 7) b[0] = b[1] = 0;
#pragma unroll
      for (int i = 0; i < TILES; ++i)
        multiply_16(d[i], at[i][0][turn * 8], at[i][1][turn * 8], at[i][0][turn * 8 + 4], at[i][1][turn * 8 + 4], b[0], b[1]);
    }
  }
  /* [warp][row][column] */
  float* sums = raw;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < TILES; ++i) {
    float* to = sums + (warp * TILES * 16 + i * 16 + group) * 8 + four * 2;
    *(float2*)to = make_float2(d[i][0], d[i][1]), *(float2*)(to + 64) = make_float2(d[i][2], d[i][3]);
  }
  __syncthreads();
  if (thread < COUNT) {
    const u32 c = thread < PAIRS ? thread / C % C : 3, other = thread < PAIRS ? thread % C : thread - PAIRS, pair = thread < PAIRS ? thread / (C * C) : 0;
    const float* at = sums + (other * 26 + pair) * 8 + 2 * c;
    float part = 0.0f;
#pragma unroll 2
    for (u32 i = 0; i < SURVEY_THREADS / 32; ++i, at += TILES * 16 * 8) part += (at[0] + at[13 * 8]) + (c < 3 ? at[1] + at[13 * 8 + 1] : 0.0f);
    s.parts[thread] = part;
  }
  let_next();
  const u32 op = image / a.rows_per_op, channel = rank * 8 + thread % 8, slice = thread / 8;
  const float* pairs = a.pairs + (u64)op * COUNT * 64 + channel;
  float weights[(PAIRS + 31) / 32];
#pragma unroll
  for (u32 i = 0; i < (PAIRS + 31) / 32; ++i) weights[i] = slice + 32 * i < PAIRS ? pairs[(slice + 32 * i) * 64] : 0.0f;
  __syncwarp();
  pair_wait();
  if (thread < COUNT) {
    float part[SURVEYORS];
#pragma unroll
    for (u32 i = 0; i < SURVEYORS; ++i) part[i] = remote(s.parts + thread, i);
    double total = 0.0;
#pragma unroll
    for (u32 i = 0; i < SURVEYORS; ++i) total += (double)part[i];
    s.totals[thread] = total * (1.0 / (1 << 2 * a.log_side));
  }
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  __syncthreads();
  double variance = 0.0;
#pragma unroll
  for (u32 i = 0; i < (PAIRS + 31) / 32; ++i) {
    const u32 pair = min(slice + 32 * i, PAIRS - 1), both = pair % (C * C);
    variance += (double)weights[i] * (s.totals[pair] - s.totals[PAIRS + both / C] * s.totals[PAIRS + both % C]);
  }
  variance += __shfl_xor_sync(~0u, variance, 8);
  variance += __shfl_xor_sync(~0u, variance, 16);
  if (lane < 8) s.shares[warp][lane] = variance;
  const float *affine = a.affine + op * 128 + channel;
  const float scaled = affine[0], shifted = affine[64];
  double mean = 0.0;
#pragma unroll
  for (int c = 0; c < C; ++c) mean += (double)pairs[(PAIRS + c) * 64] * s.totals[PAIRS + c];
  __syncthreads();
  if (thread < 8) {
    variance = 0.0;
#pragma unroll
    for (int i = 0; i < 8; ++i) variance += s.shares[i][thread];
    float* to = a.norm + image * 128 + channel;
    const float scale = scaled * (1.0f / sqrtf((float)fmax(variance, 0.0) + 1e-5f));
    /* Without the bias, which the mean would take away again. */
    to[0] = scale, to[64] = shifted - (float)mean * scale;
  }
  /* No block leaves while another may read its sums. */
  __syncwarp();
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* Time goes on by one. */
extern "C" __global__ void __cluster_dims__(SURVEYORS, 1, 1) __launch_bounds__(SURVEY_THREADS, 3) survey(const __grid_constant__ SurveyArgs a) {
  __shared__ Survey s;
  if (threadIdx.x == 0 && blockIdx.x == 0) *a.clock += 1;
  switch (a.field_channels) {
    case 1: survey_rows<1>(a, s); break;
    case 2: survey_rows<2>(a, s); break;
    default: survey_rows<3>(a, s);
  }
}

struct FirstArgs {
  Map words; /* {4 pixels of 4 words, pair of eight, which of it, sixteen pixels, row of all images}: pixels overlap */
  Map w;     /* {a row of the kernel, as the words of four pixels; 1, 64 outputs, 3 rows, operator} */
  Map out;   /* {64, rows}, 16 at once */
  FinishArgs f;
};
static_assert(sizeof(FirstArgs) == FIRST_BYTES, "as in Rust");

/* 64-byte rows, swizzled, groups of eight rows 512 bytes apart. */
FN u64 narrow_descriptor(u32 at) { return (u64)((at & 0x3ffff) >> 4) | (1ull << 16) | (32ull << 32) | (2ull << 62); }

/* A warpgroup goes down strips of 64 pixels. A pixel's three words and those of the three to its right are a row of an operand,
   which the copy engine makes of overlapping pixels; rows of the kernel are such rows of three rows of the image. Even pixels
   of sixteen come before odd ones, so that a lane has both pixels of its Philox counters. A warp writes its sixteen pixels on its own. */
template <bool GELU> FN void first_rows(const FirstArgs& a) {
  extern __shared__ u8 shared[];
  const FinishArgs& f = a.f;
  const u32 warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32, two = lane % 4;
  const u32 slots = shared_address(shared + ((1024 - (shared_address(shared) & 1023)) & 1023)), stage = slots + FIRST_SLOTS * FIRST_ROW + warp * FIRST_STAGE;
  const u32 weights = slots + FIRST_SLOTS * FIRST_ROW + 4 * FIRST_STAGE, norms = weights + FIRST_WEIGHTS + warp * 512;
  const u32 full = weights + FIRST_WEIGHTS + 4 * 512, empty = full + 8 * FIRST_SLOTS, weights_full = empty + 8 * FIRST_SLOTS, weights_empty = weights_full + 8;
  const u32 log_strips = f.log_side - 6, count = f.images << (f.log_side + log_strips), each = count / gridDim.x, more = count - each * gridDim.x;
  const u32 begin = blockIdx.x * each + min(blockIdx.x, more), end = begin + each + (blockIdx.x < more);
  auto image_of = [&](u32 unit) { return unit >> (f.log_side + log_strips); };
  auto bring_weights = [&](u32 op) {
    barrier_expect(weights_full, FIRST_WEIGHTS);
    copy5(weights, &a.w, weights_full, 0, 0, 0, 0, op);
  };
  /* Of the thread that copies: rows that have been asked for, and the next. */
  u32 asked = 0, next_unit = begin, next_row = 0;
  auto bring = [&](u32 until) {
    for (; asked < until && next_unit < end; ++asked) {
      const u32 slot = asked % FIRST_SLOTS, strip = next_unit >> f.log_side, y = (next_unit & (f.side - 1)) + next_row;
      if (asked >= FIRST_SLOTS) barrier_wait(empty + 8 * slot, (asked / FIRST_SLOTS & 1) ^ 1);
      barrier_expect(full + 8 * slot, FIRST_ROW);
      copy5(slots + slot * FIRST_ROW, &a.words, full + 8 * slot, 0, 0, 0, (strip & ((1 << log_strips) - 1)) * 4, (strip >> log_strips) * (f.side + 2) + y);
      if (++next_row == 3) next_row = ++next_unit & (f.side - 1) ? 2 : 0;
    }
  };
  if (threadIdx.x == 0) {
    for (u32 i = 0; i < FIRST_SLOTS; ++i) barrier_init(full + 8 * i, 1), barrier_init(empty + 8 * i, 4);
    barrier_init(weights_full, 1), barrier_init(weights_empty, 4);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    bring_weights(image_of(begin) / f.rows_per_op);
  }
  __syncthreads();
  wait_before();
  let_next();
  if (threadIdx.x == 0) bring(FIRST_SLOTS);
  u32 held = ~0u, held_op = image_of(begin) / f.rows_per_op, visits = 0, row = 0, limit = 0;
  Growth g;
  Rounds rounds;
  float d[32];
  /* Products of a unit whose rows begin with number `at`. */
  auto multiply_rows = [&](u32 unit, u32 at, bool begins) {
    if (begins) {
      const u32 op = image_of(unit) / f.rows_per_op;
      if (held_op != op) {
        /* All warps are done with those before. */
        if (lane == 0) barrier_arrive(weights_empty);
        if (threadIdx.x == 0) barrier_wait(weights_empty, visits & 1), bring_weights(op);
        __syncwarp();
        held_op = op, ++visits;
      }
      barrier_wait(weights_full, visits & 1);
      barrier_wait(full + 8 * (at % FIRST_SLOTS), at / FIRST_SLOTS & 1), barrier_wait(full + 8 * ((at + 1) % FIRST_SLOTS), (at + 1) / FIRST_SLOTS & 1);
    }
    barrier_wait(full + 8 * ((at + 2) % FIRST_SLOTS), (at + 2) / FIRST_SLOTS & 1);
    __syncwarp();
    products_begin();
#pragma unroll
    for (int i = 0; i < 6; ++i)
      multiply<64>(d, narrow_descriptor(slots) + (at + i / 2) % FIRST_SLOTS * (FIRST_ROW / 16) + i % 2 * 2, narrow_descriptor(weights) + i / 2 * (FIRST_WEIGHTS / 48) + i % 2 * 2, i);
    products_commit();
  };
  multiply_rows(begin, 0, true);
  /* Where a lane writes eight numbers of a pixel for a matrix of eight pixels. */
  const u32 stage_pixel = lane % 8 * 2 + lane / 8 % 2, stage_at = stage + stage_pixel * 128 + ((lane / 16 * 2 ^ stage_pixel % 8) << 4);
#pragma unroll 1
  for (u32 unit = begin; unit < end; ++unit) {
    const u32 image = image_of(unit), y = unit & (f.side - 1), x = (unit >> f.log_side & ((1 << log_strips) - 1)) * 64 + warp * 16;
    if (held != image) {
      held = image;
      rounds = rounds_of(f, image);
      const u32 dropped = f.dropped[image / f.rows_per_op];
      limit = dropped << 16, g = growth_of<GELU>(dropped);
      /* [half][of four lanes][sixteen channels' two][scale, shift]: what a lane needs of four channels at once. */
      __syncwarp();
#pragma unroll
      for (u32 i = 0; i < 4; ++i) {
        const u32 at = lane + 32 * i, channel = at % 64;
        const float x = f.norm[image * 128 + at] * g.share;
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(norms + (channel / 8 % 2) * 256 + (channel / 2 % 4) * 64 + (at / 64) * 32 + (channel / 16) * 8 + channel % 2 * 4), "f"(x) : "memory");
      }
      __syncwarp();
    }
    const bool ends = y == f.side - 1;
    products_wait<0>();
#pragma unroll
    for (int i = 0; i < 32; ++i) asm volatile("" : "+f"(d[i])::"memory");
    if (lane == 0) {
      barrier_arrive(empty + 8 * (row % FIRST_SLOTS));
      if (ends) barrier_arrive(empty + 8 * ((row + 1) % FIRST_SLOTS)), barrier_arrive(empty + 8 * ((row + 2) % FIRST_SLOTS));
    }
    row += ends ? 3 : 1;
    /* What was written before has left. */
    if (lane == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    __syncwarp();
    const u32 counter = ((y * f.side + x) / 2 + lane / 4) * 16 + two * 2;
#pragma unroll
    for (u32 half = 0; half < 2; ++half) {
      const uint4 p = drawn_by(rounds, rounds.third, counter + half * 8), q = drawn_by(rounds, rounds.third, counter + half * 8 + 1);
      float e[16], v8[8], w8[8];
#pragma unroll
      for (int i = 0; i < 16; i += 4)
        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(e[i]), "=f"(e[i + 1]), "=f"(e[i + 2]), "=f"(e[i + 3]) : "r"(norms + half * 256 + two * 64 + i * 4) : "memory");
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float* from = d + (i / 2 * 2 + half) * 4 + i % 2;
        v8[i] = fmaf(from[0], e[i], e[8 + i]), w8[i] = fmaf(from[2], e[i], e[8 + i]);
      }
      if (!GELU) activate8(v8, f.act), activate8(w8, f.act);
#pragma unroll
      for (int i = 0; i < 8; ++i) v8[i] = GELU ? gelu_grown(v8[i], g) : v8[i] * g.grow, w8[i] = GELU ? gelu_grown(w8[i], g) : w8[i] * g.grow;
      drop(v8, p.x, q.x, p.y, q.y, limit), drop(w8, p.z, q.z, p.w, q.w, limit);
#pragma unroll
      for (u32 i = 0; i < 2; ++i)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(stage_at ^ ((4 * i + half) << 4)), "r"(pack(v8[4 * i], v8[4 * i + 1])), "r"(pack(w8[4 * i], w8[4 * i + 1])), "r"(pack(v8[4 * i + 2], v8[4 * i + 3])), "r"(pack(w8[4 * i + 2], w8[4 * i + 3])) : "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    const u32 wide = f.side + 2;
    const int at = (image * wide + y + 1) * wide + x + 1, down = y == 0 ? (int)(f.side * wide) : ends ? -(int)(f.side * wide) : 0;
    if (lane == 0) {
      leave(&a.out, stage, at);
      if (down) leave(&a.out, stage, at + down);
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
    /* The border repeats the image from its other side. */
    if ((x == 0 || x + 16 == f.side) && lane < 8) {
      const u32 pixel = x == 0 ? 0 : 15;
      const int to = at + (x == 0 ? (int)f.side : 15 - (int)f.side);
      uint4 words;
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w) : "r"(stage + pixel * 128 + ((lane ^ pixel % 8) << 4)) : "memory");
      ((uint4*)f.out)[(u64)to * 8 + lane] = words;
      if (down) ((uint4*)f.out)[(u64)(to + down) * 8 + lane] = words;
    }
    __syncwarp();
    if (unit + 1 < end) {
      if (threadIdx.x == 0) bring(row + FIRST_SLOTS);
      multiply_rows(unit + 1, row, ends);
    }
  }
  if (lane == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
extern "C" __global__ void __launch_bounds__(128, 5) first(const __grid_constant__ FirstArgs a) {
  if (a.f.act == 4) first_rows<true>(a);
  else first_rows<false>(a);
}
#endif
