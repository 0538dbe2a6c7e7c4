/* The first convolution with what follows it, for instance norm: of 3x3 taps from at most three channels of the field to 64, for
   numbers of two bytes. Its results are sums of a field's numbers, so their means and variances follow from those of the field and of
   products of its numbers at most two pixels apart (`survey`), before any result is made: norm, activation and dropout need no
   pass of their own (`first`). */
#if KIND < 2
#define SURVEYORS 8
#define SURVEY_THREADS 256
#define SURVEY_SUMS (SURVEY_THREADS / 32 * 13 * 16)
#define FIRST_STAGE (16 * 128)
/* Weights of half of the outputs as lanes read them, nine times sixteen bytes a lane. */
#define FIRST_HALF (9 * 32 * 16)

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

FN void copy_bytes(u32 to, const void* from, u32 bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

/* A number to this place in block number `rank` of the cluster, and its bytes to the barrier there. */
FN void send(const float* to, u32 barrier, u32 rank, float x) {
  asm volatile(
      "{\n.reg .b32 there, at;\nmapa.shared::cluster.u32 there, %0, %2;\nmapa.shared::cluster.u32 at, %1, %2;\n"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [there], %3, [at];\n}" ::"r"(shared_address(to)), "r"(barrier), "r"(rank), "r"(__float_as_uint(x)) : "memory");
}

struct Survey {
  float parts[SURVEYORS][128];
  u64 come, sent;
};

/* A cluster takes an image, each block of it some rows: they are written in two parts, and products of pairs of numbers are added up.
   Numbers are taken from near their mean, that of 32 pixels on the diagonal: little cancels then, and what is taken away would be by
   the norm. Pairs: a pixel with itself and the two to its right, and with five of each of the next two rows. They are products of
   [other pixel's channel and part][pixel] by [pixel][channel and part], or by ones for sums; words have a number of a row of the
   block's upper half and of its lower half, so that other pixels are words elsewhere.
   Four lanes have a channel's part and go along a quarter of a row each: what one product takes of a pixel's neighbours the next takes
   again, so a lane keeps eight words of three rows. Quarters lie apart with the four words behind them, for banks. */
template <int C> FN void survey_rows(const SurveyArgs& a, Survey& s) {
  extern __shared__ __align__(128) u8 shared[];
  constexpr u32 PAIRS = 13 * C * C, COUNT = PAIRS + C, GROUPS = (COUNT + 31) / 32;
  const u32 side = a.side, rows = side / SURVEYORS, half = rows / 2, rank = blockIdx.x % SURVEYORS, image = blockIdx.x / SURVEYORS;
  const u32 thread = threadIdx.x, lane = thread % 32, warp = __shfl_sync(~0u, thread / 32, 0), come = shared_address(&s.come), sent = shared_address(&s.sent);
  const u32 quarter = side / 4 + 4, wide = 4 * quarter, plane = (half + 2) * wide + 16;
  const float* field = a.state + (u64)image * side * side * C;
  float* raw = (float*)shared; /* [rows + 2][side][C], later sums */
  /* [C][part][half + 2][four quarters of a row with four columns more each], from two columns to the left on */
  u32* band = (u32*)(raw + max((rows + 2) * side * C, SURVEY_SUMS));
  if (thread == 0) {
    barrier_init(come, 1), barrier_init(sent, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    barrier_expect(come, (rows + 2) * side * C * 4);
    copy_bytes(shared_address(raw), field + rank * rows * side * C, rows * side * C * 4, come);
    copy_bytes(shared_address(raw + rows * side * C), field + ((rank + 1) % SURVEYORS) * rows * side * C, 2 * side * C * 4, come);
    barrier_expect(sent, SURVEYORS * COUNT * 4);
  }
  __syncthreads();
  /* Other blocks see barriers by the fence; nothing else has to be there for them. */
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
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
  /* A warp's channel: what does not depend on the field. */
  const u32 op = image / a.rows_per_op, channel = rank * 8 + warp;
  const float *pairs = a.pairs + (u64)op * COUNT * 64 + channel, *affine = a.affine + op * 128 + channel;
  float weights[GROUPS];
#pragma unroll
  for (u32 i = 0; i < GROUPS; ++i) weights[i] = lane + 32 * i < COUNT ? pairs[(lane + 32 * i) * 64] : 0.0f;
  const float scaled = affine[0], shifted = affine[64];
  barrier_wait(come, 0);
  /* A thread has some rows of a column. */
  const u32 i = thread & (side - 1), x = (i - 2) & (side - 1), step = SURVEY_THREADS >> a.log_side, pitch = side + 4;
  const u32 log_quarter = a.log_side - 2, which = i >> log_quarter, within = i & (side / 4 - 1);
  u32* column = band + which * quarter + within;
  const int behind = within < 4 ? (int)((which ? which - 1 : 3) * quarter + side / 4 + within) - (int)(which * quarter + within) : 0, right = x == 0 ? (int)side : x == side - 1 ? -(int)side : 0;
  uint4* words = (uint4*)a.words + ((u64)image * (side + 2) + rank * rows + 1) * pitch + x + 1;
#pragma unroll 1
  for (u32 y = thread >> a.log_side; y < half + 2; y += step) {
    u32* at = column + y * wide;
    const float *from = raw + (y * side + x) * C, *below = from + half * side * C;
    u32 upper[4] = {}, lower[4] = {};
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const float v = from[c] - near[c], w = below[c] - near[c];
      const u32 large = pack(v, w);
      const float2 stored = unpack(large);
      const u32 small = pack(v - stored.x, w - stored.y);
      at[2 * c * plane] = large, at[(2 * c + 1) * plane] = small;
      if (behind) at[(int)(2 * c * plane) + behind] = large, at[(int)((2 * c + 1) * plane) + behind] = small;
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
  let_next();
  const u32 group = lane / 4, four = lane % 4;
  const bool reads = group < 2 * C;
  /* Seven times 16 rows: of a channel's part the pairs one after the other. Groups beyond have ones, the last nothing. */
  float d[7][4] = {};
  uint4 left[3], next[3];
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    const u32 fill = group == 7 ? 0 : KIND == 1 ? 0x3c003c00u : 0x3f803f80u;
    left[i] = next[i] = make_uint4(fill, fill, fill, fill);
  }
  /* Quarters of a row, or their halves: as many for each warp. */
  const u32 length = side == 64 ? 8 : 32, log_parts = side == 128 ? 0 : 1;
  const auto multiply_four = [&](const uint4 (&l)[3], const uint4 (&r)[3]) {
#pragma unroll
    for (int turn = 0; turn < 2; ++turn) {
      const auto word = [&](int row, int i) {
        const uint4& q = i < 4 ? l[row] : r[row];
        return i % 4 == 0 ? q.x : i % 4 == 1 ? q.y : i % 4 == 2 ? q.z : q.w;
      };
      const u32 b0 = word(0, 2 * turn + 2), b1 = word(0, 2 * turn + 3);
#pragma unroll
      for (int tile = 0; tile < 7; ++tile) {
        const int upper = 2 * tile + 2, lower = upper + 1;
        const u32 a0 = word(upper / 5, upper % 5 + 2 * turn), a2 = word(upper / 5, upper % 5 + 2 * turn + 1);
        const u32 a1 = tile < 6 ? word(lower / 5, lower % 5 + 2 * turn) : 0, a3 = tile < 6 ? word(lower / 5, lower % 5 + 2 * turn + 1) : 0;
        multiply_16(d[tile], a0, a1, a2, a3, b0, b1);
      }
    }
  };
#pragma unroll 1
  for (u32 work = warp; work < half << log_parts; work += SURVEY_THREADS / 32) {
    const u32* at = band + min(group, 2 * C - 1) * plane + (work >> log_parts) * wide + four * quarter + (work & ((1 << log_parts) - 1)) * length;
    if (reads) {
#pragma unroll
      for (u32 i = 0; i < 3; ++i) left[i] = *(const uint4*)(at + i * wide);
    }
#pragma unroll 1
    for (u32 j = 0; j < length; j += 8) {
      if (reads) {
#pragma unroll
        for (u32 i = 0; i < 3; ++i) next[i] = *(const uint4*)(at + i * wide + j + 4);
      }
      multiply_four(left, next);
      if (reads) {
#pragma unroll
        for (u32 i = 0; i < 3; ++i) left[i] = *(const uint4*)(at + i * wide + j + 8);
      }
      multiply_four(next, left);
    }
  }
  /* Both parts of both numbers: [warp][pair][other channel, channel; the fourth has sums] */
  float* sums = raw;
#pragma unroll
  for (int i = 0; i < 13; ++i) {
    float x = d[i / 2][i % 2 * 2] + d[i / 2][i % 2 * 2 + 1];
    x += __shfl_xor_sync(~0u, x, 4);
    if (group % 2 == 0 && reads) sums[(warp * 13 + i) * 16 + group * 2 + four] = x;
  }
  __syncthreads();
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  if (thread < COUNT) {
    const u32 c = thread < PAIRS ? thread / C % C : 3, other = thread < PAIRS ? thread % C : thread - PAIRS, pair = thread < PAIRS ? thread / (C * C) : 0;
    const float* at = sums + pair * 16 + other * 4 + c;
    float part[8];
#pragma unroll
    for (u32 i = 0; i < 8; ++i) part[i] = at[i * 13 * 16];
    const float sum = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
#pragma unroll
    for (u32 i = 0; i < SURVEYORS; ++i) send(&s.parts[rank][thread], sent, i, sum);
  }
  __syncwarp();
  barrier_wait(sent, 0);
  float totals[GROUPS];
#pragma unroll
  for (u32 i = 0; i < GROUPS; ++i) {
    float part[SURVEYORS];
#pragma unroll
    for (u32 j = 0; j < SURVEYORS; ++j) part[j] = lane + 32 * i < COUNT ? s.parts[j][lane + 32 * i] : 0.0f;
    totals[i] = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
  }
  constexpr u32 LAST = PAIRS / 32, FIRST_SUM = PAIRS % 32;
  const double share = 1.0 / (1 << 2 * a.log_side);
  double mean = 0.0, variance = 0.0;
#pragma unroll
  for (u32 c = 0; c < C; ++c) mean += (double)__shfl_sync(~0u, weights[LAST], FIRST_SUM + c) * ((double)__shfl_sync(~0u, totals[LAST], FIRST_SUM + c) * share);
#pragma unroll
  for (u32 i = 0; i < GROUPS; ++i) {
    const u32 pair = lane + 32 * i, both = pair % (C * C);
    const double x = (double)__shfl_sync(~0u, totals[LAST], FIRST_SUM + both / C) * share, y = (double)__shfl_sync(~0u, totals[LAST], FIRST_SUM + both % C) * share;
    if (pair < PAIRS) variance += (double)weights[i] * ((double)totals[i] * share - x * y);
  }
#pragma unroll
  for (u32 step = 16; step > 0; step /= 2) variance += __shfl_xor_sync(~0u, variance, step);
  if (lane == 0) {
    float* to = a.norm + image * 128 + channel;
    const float scale = scaled * (1.0f / sqrtf((float)fmax(variance, 0.0) + 1e-5f));
    /* Without the bias, which the mean would take away again. */
    to[0] = scale, to[64] = shifted - (float)mean * scale;
  }
  if (thread == 0 && blockIdx.x == 0) *a.clock += 1;
}

/* Time goes on by one. */
extern "C" __global__ void __cluster_dims__(SURVEYORS, 1, 1) __launch_bounds__(SURVEY_THREADS, 3) survey(const __grid_constant__ SurveyArgs a) {
  __shared__ Survey s;
  switch (a.field_channels) {
    case 1: survey_rows<1>(a, s); break;
    case 2: survey_rows<2>(a, s); break;
    default: survey_rows<3>(a, s);
  }
}

struct FirstArgs {
  Map out; /* {64, rows}, 16 at once */
  FinishArgs f;
  const u32* words;     /* as in `SurveyArgs` */
  const uint4* weights; /* [operators, half of the outputs, 9, 32 lanes], `weights_by_lane` in Rust */
};
static_assert(sizeof(FirstArgs) == FIRST_BYTES, "as in Rust");

/* d += a b, of 16 rows by 8 numbers and 8 columns: a lane has numbers 2t and 2t + 1 of rows g and g + 8. */
FN void multiply_half(float (&d)[4], u32 a0, u32 a1, u32 b) {
#if KIND == 1
#define NAME "f16"
#else
#define NAME "bf16"
#endif
  asm("mma.sync.aligned.m16n8k8.row.col.f32." NAME "." NAME ".f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(b));
#undef NAME
}

/* A warp goes down a strip of sixteen pixels on its own. Rows of products are its pixels, even ones before odd ones, so that a lane has
   both pixels of its Philox counters; a step along them is a pixel's four words, the fourth of which is nothing. So a lane has
   one channel of four pixels next to each other, of three rows, two of which it has from the pixels above. */
template <bool GELU> FN void first_rows(const FirstArgs& a) {
  extern __shared__ u8 shared[];
  const FinishArgs& f = a.f;
  const u32 warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32, two = lane % 4;
  u8* room = shared + ((1024 - (shared_address(shared) & 1023)) & 1023);
  const u32 stage = shared_address(room) + warp * FIRST_STAGE;
  float* norms = (float*)(room + 4 * FIRST_STAGE + warp * 512);
  uint4* weights = (uint4*)(room + 4 * (FIRST_STAGE + 512));
  const u32 log_strips = f.log_side - 4, log_image = f.log_side + log_strips, count = f.images << log_image, each = count / gridDim.x, more = count - each * gridDim.x;
  const u32 begin = blockIdx.x * each + min(blockIdx.x, more), end = begin + each + (blockIdx.x < more), pitch = (f.side + 4) * 4;
  /* Where a lane writes eight numbers of a pixel for a matrix of eight pixels. */
  const u32 stage_pixel = lane % 8 * 2 + lane / 8 % 2;
  u32 stage_at = stage + stage_pixel * 128 + ((lane / 16 * 2 ^ stage_pixel % 8) << 4);
  hold(stage_at);
  u32 held = ~0u, limit = 0;
  Growth g;
  Rounds rounds;
  /* Operators one after the other: few blocks have two. */
#pragma unroll 1
  for (u32 first = begin; first < end;) {
    const u32 op = (first >> log_image) / f.rows_per_op, until = min(end, (op + 1) * f.rows_per_op << log_image);
    if (first != begin) __syncthreads();
    for (u32 i = threadIdx.x; i < 2 * FIRST_HALF / 16; i += 128) weights[i] = a.weights[op * (2 * FIRST_HALF / 16) + i];
    __syncthreads();
    if (first == begin) wait_before(), let_next();
    const u32 of_warp = (until - first) / 4, over = (until - first) % 4;
    u32 unit = first + warp * of_warp + min(warp, over);
    const u32 stop = unit + of_warp + (warp < over);
    first = until;
#pragma unroll 1
    while (unit < stop) {
      /* Down a strip of an image. */
      const u32 image = unit >> log_image, x = (unit >> f.log_side & ((1 << log_strips) - 1)) * 16, wide = f.side + 2;
      u32 y = unit & (f.side - 1);
      const u32 below = min(f.side, y + stop - unit);
      unit += below - y;
      const u32* at = a.words + (image * wide + y) * pitch + (x + lane / 4 * 2) * 4 + two;
      u32 v[3][4], middle[6];
#pragma unroll
      for (u32 i = 0; i < 12; ++i) v[i / 4][i % 4] = at[i / 4 * pitch + i % 4 * 4];
      at += 3 * pitch;
      if (held != image) {
        held = image;
        rounds = rounds_of(f, image);
        const u32 dropped = f.dropped[op];
        limit = dropped << 16, g = growth_of<GELU>(dropped);
        /* [half][of four lanes][sixteen channels' two][scale, shift]: what a lane needs of four channels at once. */
        __syncwarp();
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
          const u32 at = lane + 32 * i, channel = at % 64;
          norms[(channel / 8 % 2) * 64 + (channel / 2 % 4) * 16 + (at / 64) * 8 + (channel / 16) * 2 + channel % 2] = f.norm[image * 128 + at] * g.share;
        }
        __syncwarp();
      }
      u32 counter = ((y * f.side + x) / 2 + lane / 4) * 16 + two * 2;
      int to = (image * wide + y + 1) * wide + x + 1;
      hold(counter);
      const bool aside = (x == 0 || x + 16 == f.side) && lane < 8;
#pragma unroll 1
      for (; y < below; ++y, to += wide, counter += f.side * 8) {
        middle[0] = v[0][1], middle[1] = v[0][2], middle[2] = v[1][1], middle[3] = v[1][2], middle[4] = v[2][1], middle[5] = v[2][2];
#pragma unroll
        for (int i = 0; i < 6; ++i) hold(middle[i]);
        /* Behind an image's last row there are words too. */
        u32 next[4];
#pragma unroll
        for (u32 i = 0; i < 4; ++i) next[i] = at[i * 4];
        at += pitch;
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
          const uint4* w = weights + half * (FIRST_HALF / 16) + lane;
          float d[4][4] = {};
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const uint4 p = w[i * 64], q = w[i * 64 + 32];
            /* Left and right column of a row: four registers next to each other; then the middle of two rows. */
            const u32* row = i < 3 ? v[i] : middle;
            multiply_16(d[0], row[0], row[1], row[2], row[3], p.x, p.y), multiply_16(d[1], row[0], row[1], row[2], row[3], p.z, p.w);
            multiply_16(d[2], row[0], row[1], row[2], row[3], q.x, q.y), multiply_16(d[3], row[0], row[1], row[2], row[3], q.z, q.w);
          }
          const uint4 r = w[8 * 32];
          multiply_half(d[0], middle[4], middle[5], r.x), multiply_half(d[1], middle[4], middle[5], r.y);
          multiply_half(d[2], middle[4], middle[5], r.z), multiply_half(d[3], middle[4], middle[5], r.w);
          const uint4 p = drawn_by(rounds, rounds.third, counter + half * 8), q = drawn_by(rounds, rounds.third, counter + half * 8 + 1);
          const float4* e = (const float4*)(norms + half * 64 + two * 16);
          const float4 scale = e[0], more_scale = e[1], shift = e[2], more_shift = e[3];
          const float scales[8] = {scale.x, scale.y, scale.z, scale.w, more_scale.x, more_scale.y, more_scale.z, more_scale.w};
          const float shifts[8] = {shift.x, shift.y, shift.z, shift.w, more_shift.x, more_shift.y, more_shift.z, more_shift.w};
          float v8[8], w8[8];
#pragma unroll
          for (int i = 0; i < 8; ++i) v8[i] = fmaf(d[i / 2][i % 2], scales[i], shifts[i]), w8[i] = fmaf(d[i / 2][2 + i % 2], scales[i], shifts[i]);
          if (!GELU) activate8(v8, f.act), activate8(w8, f.act);
#pragma unroll
          for (int i = 0; i < 8; ++i) v8[i] = GELU ? gelu_grown(v8[i], g) : v8[i] * g.grow, w8[i] = GELU ? gelu_grown(w8[i], g) : w8[i] * g.grow;
          drop(v8, p.x, q.x, p.y, q.y, limit), drop(w8, p.z, q.z, p.w, q.w, limit);
          if (half == 0) {
            /* What was written before has left. */
            if (lane == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
            __syncwarp();
          }
#pragma unroll
          for (u32 i = 0; i < 2; ++i)
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(stage_at ^ ((4 * i + half) << 4)), "r"(pack(v8[4 * i], v8[4 * i + 1])), "r"(pack(w8[4 * i], w8[4 * i + 1])), "r"(pack(v8[4 * i + 2], v8[4 * i + 3])), "r"(pack(w8[4 * i + 2], w8[4 * i + 3])) : "memory");
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncwarp();
        const int down = y == 0 ? (int)(f.side * wide) : y == f.side - 1 ? -(int)(f.side * wide) : 0;
        if (lane == 0) {
          leave(&a.out, stage, to);
          if (down) leave(&a.out, stage, to + down);
          asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        }
        /* The border repeats the image from its other side. */
        if (aside) {
          const u32 pixel = x == 0 ? 0 : 15;
          const int beside = to + (x == 0 ? (int)f.side : 15 - (int)f.side);
          uint4 words;
          asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w) : "r"(stage + pixel * 128 + ((lane ^ pixel % 8) << 4)) : "memory");
          ((uint4*)f.out)[(u64)beside * 8 + lane] = words;
          if (down) ((uint4*)f.out)[(u64)(beside + down) * 8 + lane] = words;
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 4; ++i) v[0][i] = v[1][i], v[1][i] = v[2][i], v[2][i] = next[i];
      }
    }
  }
  if (lane == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
extern "C" __global__ void __launch_bounds__(128, 6) first(const __grid_constant__ FirstArgs a) {
  if (a.f.act == 4) first_rows<true>(a);
  else first_rows<false>(a);
}
#endif
