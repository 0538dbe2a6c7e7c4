/* Between convolutions of 128 or 256 channels where a 1x1 convolution of 64 or 128 channels comes past: it is made here, on tensor
   cores, from the block's input, which has half as many numbers as its result. For numbers of two bytes.

   A block has a pair of 64 channels and their weights; each of its teams, a warpgroup, takes 64 pixels at a time, of which a warp brings,
   finishes and sends away 16 on its own. Sums of a product are as lanes of `mma` have them: of each eight columns two, of rows g and
   g + 8, g = lane / 4. Weights lie so that columns of one product are half of each sixteen channels: a lane then has all numbers of its
   Philox counters, as in `wide.cu`. */
#if KIND < 2
#define PAST_TEAMS 4
#define PAST_PIXELS 64
#define PAST_CHUNK (PAST_PIXELS * 128)
/* Of a warp. */
#define PAST_OWN 16

struct PastArgs {
  Map y, x, w, out; /* {channels, 1, column, row, image}, of x 64 columns at once, else 16; w: {inputs, 1, output, 1, operator}, 64 outputs */
  FinishArgs f;
  Norms n;
  const float* bias; /* [operators, channels] */
  u32 chunks, unused; /* of 64 inputs */
};
static_assert(sizeof(PastArgs) == PAST_BYTES, "as in Rust");

/* Where 64 pixels lie. */
struct Pixels {
  u32 image, first, x, y;
};
FN Pixels pixels_of(const FinishArgs& f, u32 unit) {
  const u32 log_units = 2 * f.log_side - 6;
  Pixels p;
  p.image = unit >> log_units;
  p.first = (unit - (p.image << log_units)) * PAST_PIXELS;
  p.x = p.first & (f.side - 1), p.y = p.first >> f.log_side;
  return p;
}

/* A warp's results, of 16 pixels from `first` of 64 on. */
FN void bring_results(const PastArgs& a, u32 pair, u32 unit, u32 first, u32 to, u32 come) {
  const Pixels p = pixels_of(a.f, unit);
  barrier_expect(come, 2 * PAST_OWN * 128);
  for (u32 i = 0; i < 2; ++i) copy5(to + i * PAST_CHUNK, &a.y, come, pair * 128 + i * 64, 0, p.x + first, p.y, p.image);
}
template <u32 CHUNKS> FN void bring_inputs(const PastArgs& a, u32 unit, u32 to, u32 come) {
  const Pixels p = pixels_of(a.f, unit);
  barrier_expect(come, CHUNKS * PAST_CHUNK);
  for (u32 i = 0; i < CHUNKS; ++i) copy5(to + i * PAST_CHUNK, &a.x, come, i * 64, 0, p.x + a.f.border, p.y + a.f.border, p.image);
}
FN void leave_at(const Map* out, u32 from, u32 channel, u32 x, u32 y, u32 image) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(out), "r"(from), "r"(channel), "r"(0), "r"(x), "r"(y), "r"(image) : "memory");
}
/* A warp's pixels at a side of the image, from x on, once more `beside`; those at top or bottom leave twice as well. */
FN void repeat_ends(const FinishArgs& f, const Pixels& p, u32 pair, u32 stage, u32 x, int beside, u32 lane) {
  const u32 wide = f.side + 2 * f.border, octets = f.channels / 8;
  u8* out = f.out + (u64)p.image * wide * wide * f.channels * 2;
  for (u32 i = lane; i < f.border * 16; i += 32) {
    const u32 octet = i % 16, row = x + i / 16 - p.x;
    uint4 words;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w) : "r"(stage + octet / 8 * PAST_CHUNK + row * 128 + ((octet % 8 ^ row % 8) << 4)) : "memory");
    const u32 at = (p.y + f.border) * wide + x + i / 16 + beside + f.border;
    ((uint4*)out)[at * octets + pair * 16 + octet] = words;
    const int down = p.y < f.border ? (int)f.side : p.y >= f.side - f.border ? -(int)f.side : 0;
    if (down) ((uint4*)out)[(at + down * wide) * octets + pair * 16 + octet] = words;
  }
}

/* Sixteen numbers of a chunk, eight of row g and eight of row g + 8: in place of results what becomes of them. */
template <bool GELU, int CHUNK>
FN void finish_two(const FinishArgs& f, const u32* at, const float4* near, const float (&d)[32], const u32 (&bits)[8], u32 limit, const Growth& g) {
  float4 k[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) k[j] = near[CHUNK * 32 + j * 8];
  float both[2][8];
  eight_at<CHUNK * PAST_CHUNK>(at, both[0]), eight_at<CHUNK * PAST_CHUNK + 1024>(at, both[1]);
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float* v = both[row];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float* more = d + CHUNK * 16 + 4 * j + 2 * row;
      v[2 * j] = fmaf(more[0], g.share, fmaf(v[2 * j], k[j].x, k[j].z)), v[2 * j + 1] = fmaf(more[1], g.share, fmaf(v[2 * j + 1], k[j].y, k[j].w));
    }
    if (!GELU) activate8(v, f.act);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = GELU ? gelu_grown(v[i], g) : v[i] * g.grow;
    drop(v, bits[4 * row], bits[4 * row + 1], bits[4 * row + 2], bits[4 * row + 3], limit);
#pragma unroll
    for (int j = 0; j < 4; ++j) asm volatile("st.shared.u32 [%0], %1;" ::"r"(at[j] + CHUNK * PAST_CHUNK + row * 1024), "r"(pack(v[2 * j], v[2 * j + 1])) : "memory");
  }
}

template <bool GELU, u32 CHUNKS> FN void finish_with_past(const PastArgs& a) {
  extern __shared__ u8 shared[];
  const FinishArgs& f = a.f;
  const u32 team = __shfl_sync(~0u, threadIdx.x / 128, 0), warp = __shfl_sync(~0u, threadIdx.x / 32 % 4, 0), lane = threadIdx.x % 32, quarter = lane % 4;
  const u32 room = shared_address(shared) + ((1024 - (shared_address(shared) & 1023)) & 1023);
  /* Weights; of each team results, twice, and inputs. */
  const u32 weights = room, teams = weights + 2 * CHUNKS * PAST_CHUNK, team_bytes = (4 + CHUNKS) * PAST_CHUNK;
  const u32 after = teams + PAST_TEAMS * team_bytes, results = teams + team * team_bytes, inputs = results + 4 * PAST_CHUNK;
  /* Of two channels next to each other: scales and shifts. */
  float4* near = (float4*)(shared + (after - shared_address(shared)));
  const u32 weights_come = after + 1024, inputs_come = weights_come + 8 + 80 * team, inputs_go = inputs_come + 8, come = inputs_come + 16 + 16 * warp;
  const u32 pairs = f.channels / 128, pair = blockIdx.x & (pairs - 1), number = blockIdx.x >> (pairs - 1), blocks = gridDim.x >> (pairs - 1);
  const u32 log_units = 2 * f.log_side - 6, count = f.images << log_units, each = count / blocks, more = count - each * blocks;
  const u32 first = number * each + min(number, more), end = first + each + (number < more), own = results + warp * PAST_OWN * 128;
  /* Another warp in each team, so that no quarter of a multiprocessor has all of them. */
  const bool brings = warp == team % 4;
  u32 unit = first + team, turn = 0;
  if (lane == 0) {
    barrier_init(come, 1), barrier_init(come + 8, 1);
    if (brings) barrier_init(inputs_come, 1), barrier_init(inputs_go, 4);
    if (threadIdx.x == 0) barrier_init(weights_come, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    if (brings && unit < end) bring_inputs<CHUNKS>(a, unit, inputs, inputs_come);
  }
  const auto bring_first_results = [&] {
    for (u32 i = 0; i < 2; ++i)
      if (unit + i * PAST_TEAMS < end) bring_results(a, pair, unit + i * PAST_TEAMS, warp * PAST_OWN, own + i * 2 * PAST_CHUNK, come + 8 * i);
  };
  if (lane == 0 && !a.n.sums) bring_first_results();
  u32 held = ~0u, visits = 0;
#pragma unroll 1
  for (u32 image = first >> log_units; first < end && image <= (end - 1) >> log_units; ++image) {
    const u32 op = image / f.rows_per_op, dropped = f.dropped[op], limit = dropped << 16;
    const Growth growth = growth_of<GELU>(dropped);
    /* All teams are through with the image before. */
    __syncthreads();
    if (held != op) {
      held = op;
      if (threadIdx.x == 0) {
        barrier_expect(weights_come, 2 * CHUNKS * PAST_CHUNK);
        for (u32 i = 0; i < 2 * CHUNKS; ++i) copy5(weights + i * PAST_CHUNK, &a.w, weights_come, i % CHUNKS * 64, 0, pair * 128 + i / CHUNKS * 64, 0, op);
      }
      ++visits;
    }
    const Key key = key_of(f, image);
    const bool begins = image == first >> log_units;
    /* A second time neither waits. Norms as in `begin_image`. */
#pragma unroll 1
    for (u32 again = a.n.sums && begins ? 0 : 1; again < 2; ++again) {
      if (again == 1) {
        wait_before();
        let_next();
        /* Made by the kernel before, unless that made norms. */
        if (lane == 0 && a.n.sums && begins) bring_first_results();
      }
      if (threadIdx.x < 64) {
        const u32 channel = pair * 128 + threadIdx.x * 2;
        const float4 norm = norms_of(a.n, f, image, op, channel, growth.share);
        const float2 bias = *(const float2*)(a.bias + op * f.channels + channel);
        near[threadIdx.x] = make_float4(norm.x, norm.z, fmaf(bias.x, growth.share, norm.y), fmaf(bias.y, growth.share, norm.w));
      }
    }
    if (begins) clear_sums(a.n);
    __syncthreads();
    const Rounds rounds = rounds_by(f, key);
    barrier_wait(weights_come, (visits - 1) & 1);
    const u32 until = min(end, (image + 1) << log_units);
#pragma unroll 1
    for (; unit < until; unit += PAST_TEAMS, ++turn) {
      const Pixels p = pixels_of(f, unit);
      const u32 which = turn & 1, stage = results + which * 2 * PAST_CHUNK, row = warp * PAST_OWN + lane / 4;
      const bool next = unit + PAST_TEAMS < end;
      barrier_wait(inputs_come, which);
#pragma unroll 1
      for (u32 half = 0; half < 2; ++half) {
        float d[32];
        products_begin();
#pragma unroll
        for (u32 chunk = 0; chunk < CHUNKS; ++chunk) {
          const u64 left = descriptor(inputs + chunk * PAST_CHUNK), right = descriptor(weights + (half * CHUNKS + chunk) * PAST_CHUNK);
#pragma unroll
          for (int part = 0; part < 4; ++part) multiply<64>(d, left + 2 * part, right + 2 * part, (chunk | part) != 0);
        }
        products_commit();
        const u32 counter = ((p.first + row) * pairs + pair) * 16 + half * 8 + quarter * 2;
        const uint4 c = drawn_by(rounds, rounds.third, counter), e = drawn_by(rounds, rounds.third, counter + 1);
        const uint4 g = drawn_by(rounds, rounds.third, counter + 128 * pairs), h = drawn_by(rounds, rounds.third, counter + 128 * pairs + 1);
        u32 at[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) at[j] = (stage + row * 128 + ((half ^ row % 8) << 4) + quarter * 4) ^ (32 * j);
        const float4* of = near + half * 4 + quarter;
        products_wait<0>();
#pragma unroll
        for (int i = 0; i < 32; ++i) asm volatile("" : "+f"(d[i])::"memory");
        if (half == 0) {
          barrier_wait(come + 8 * which, turn >> 1 & 1);
        } else if (lane == 0) {
          barrier_arrive(inputs_go);
          if (brings && next) {
            barrier_wait(inputs_go, which);
            bring_inputs<CHUNKS>(a, unit + PAST_TEAMS, inputs, inputs_come);
          }
        }
        finish_two<GELU, 0>(f, at, of, d, {c.x, e.x, c.y, e.y, g.x, h.x, g.y, h.y}, limit, growth);
        finish_two<GELU, 1>(f, at, of, d, {c.z, e.z, c.w, e.w, g.z, h.z, g.w, h.w}, limit, growth);
        /* The next but one may come where the one before has left by now. */
        if (half == 0 && lane == 0 && turn > 0 && next) {
          asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
          bring_results(a, pair, unit + PAST_TEAMS, warp * PAST_OWN, own + (which ^ 1) * 2 * PAST_CHUNK, come + 8 * (which ^ 1));
        }
      }
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncwarp();
      if (lane == 0) {
        const u32 x = p.x + warp * PAST_OWN + f.border, y = p.y + f.border;
        for (u32 i = 0; i < 2; ++i) {
          const u32 from = own + (which * 2 + i) * PAST_CHUNK, channel = pair * 128 + i * 64;
          leave_at(&a.out, from, channel, x, y, p.image);
          if (p.y < f.border) leave_at(&a.out, from, channel, x, y + f.side, p.image);
          if (p.y >= f.side - f.border) leave_at(&a.out, from, channel, x, y - f.side, p.image);
        }
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      }
      if (warp == 0 && p.x == 0) repeat_ends(f, p, pair, stage, 0, f.side, lane);
      if (warp == 3 && p.x + PAST_PIXELS == f.side) repeat_ends(f, p, pair, stage, f.side - f.border, -(int)f.side, lane);
      __syncwarp();
    }
  }
  if (lane == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

template <bool GELU> FN void finish_past_any(const PastArgs& a) {
  if (a.chunks == 1) finish_with_past<GELU, 1>(a);
  else finish_with_past<GELU, 2>(a);
}
extern "C" __global__ void __launch_bounds__(128 * PAST_TEAMS, 1) finish_past(const __grid_constant__ PastArgs a) {
  if (a.f.act == 4) finish_past_any<true>(a);
  else finish_past_any<false>(a);
}
#endif
