/* What lies between convolutions of 64, 128 or 256 channels: `finish` and `finish_last` for numbers of two bytes.

   A block takes 8,192 numbers in a row, 128 rows of 64, which the copy engine brings to shared memory and takes from there, swizzled.
   Eight lanes take two rows: of each sixteen numbers a lane has the two whose random bits are those of its own two Philox counters, so
   that lanes exchange nothing; the four pairs of rows of a warp are in different banks. */
#if KIND < 2
#define WIDE_THREADS 128
#define WIDE_ROWS 128
#define WIDE_BYTES (WIDE_ROWS * 128)

struct WideArgs {
  Map y;    /* {64, rows}, 128 rows at once */
  Map past; /* {64, rows}, those of a block that lie in one row of an image at once */
  Map out;  /* likewise */
  FinishArgs f;
};
static_assert(sizeof(WideArgs) == WIDE_BYTES_OF_ARGS, "as in Rust");
struct WideLastArgs {
  Map y, past;
  LastArgs l;
};
static_assert(sizeof(WideLastArgs) == WIDE_LAST_BYTES, "as in Rust");

/* Computed once: the compiler would do it again each turn to save registers. */
FN void hold(u32& x) { asm volatile("" : "+r"(x)); }

/* Philox of counters (n, row, time, layer): what does not depend on n is reckoned once. */
struct Rounds {
  u32 third, first, after, last, keys[16];
};
FN Rounds rounds_of(const FinishArgs& f, u32 image) {
  const u32* key = f.keys + 4 * image;
  u32 k0 = key[0], k1 = key[1];
  Rounds r;
  const u64 b = (u64)*f.clock * 0xCD9E8D57u, a = (u64)((u32)(b >> 32) ^ key[2] ^ k0) * 0xD2511F53u;
  r.third = f.layer ^ k1;
  k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  r.first = (u32)b ^ k0, r.after = (u32)(a >> 32) ^ k1, r.last = (u32)a;
  hold(r.third), hold(r.first), hold(r.after), hold(r.last);
#pragma unroll
  for (int i = 0; i < 16; i += 2) {
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    r.keys[i] = k0, r.keys[i + 1] = k1;
    hold(r.keys[i]), hold(r.keys[i + 1]);
  }
  return r;
}
/* By `third` the layer may be another one. */
FN uint4 drawn_by(const Rounds& r, u32 third, u32 n) {
  u64 a = (u64)n * 0xD2511F53u, b = (u64)((u32)(a >> 32) ^ third) * 0xCD9E8D57u;
  uint4 c = make_uint4((u32)(b >> 32) ^ r.first, (u32)b, (u32)a ^ r.after, r.last);
#pragma unroll
  for (int i = 0; i < 16; i += 2) {
    a = (u64)c.x * 0xD2511F53u, b = (u64)c.z * 0xCD9E8D57u;
    c = make_uint4((u32)(b >> 32) ^ c.y ^ r.keys[i], (u32)b, (u32)(a >> 32) ^ c.w ^ r.keys[i + 1], (u32)a);
  }
  return c;
}

/* x Φ(x) times 2 `half`. In bf16 Φ is (1 + tanh)/2 of a cubic, within 3e-4, a seventh of the rounding near 1. */
FN float gelu_scaled(float x, float half) {
#if KIND == 0
  float inner = x * fmaf(x * x, 0.0347009f, 0.800157f), outer, share = x * half;
  asm("tanh.approx.f32 %0, %1;" : "=f"(outer) : "f"(inner));
  return fmaf(share, outer, share);
#else
  return gelu(x) * (2.0f * half);
#endif
}

/* A block's place: which image, and which of its rows of 64 numbers. */
struct Block {
  u32 image, first, chunks, line, lines;
};
FN Block block_of(const FinishArgs& f) {
  const u32 log_blocks = 2 * f.log_side + f.log_channels - 13;
  Block b;
  b.image = blockIdx.x >> log_blocks, b.first = (blockIdx.x & ((1u << log_blocks) - 1)) * WIDE_ROWS;
  /* Rows of a pixel, of a stretch within one row of the image, and such stretches. */
  b.chunks = f.channels / 64, b.line = min(WIDE_ROWS, f.side * b.chunks), b.lines = WIDE_ROWS / b.line;
  return b;
}
/* Where stretch `i` begins in a tensor with a border, or without. */
FN u32 row_at(const FinishArgs& f, const Block& b, u32 i, u32 border) {
  const u32 pixel = (b.first + i * b.line) / b.chunks, y = pixel >> f.log_side, x = pixel & (f.side - 1), wide = f.side + 2 * border;
  return ((b.image * wide + y + border) * wide + x + border) * b.chunks;
}

/* Results, and what comes past them, to shared memory; both are of kernels before the one before this one. */
FN void bring_rows(const FinishArgs& f, const Block& b, const Map* y, const Map* past, u32 tile, u32 come) {
  barrier_init(come, 1);
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  barrier_expect(come, f.past ? 2 * WIDE_BYTES : WIDE_BYTES);
  copy5(tile, y, come, 0, row_at(f, b, 0, 0), 0, 0, 0);
  if (!f.past) return;
  for (u32 i = 0; i < b.lines; ++i) copy5(tile + WIDE_BYTES + i * b.line * 128, past, come, 0, row_at(f, b, i, f.past_is_activation ? f.border : 0), 0, 0, 0);
}

/* Of a lane's sixteen numbers: scales and shifts. */
struct Sixteen {
  Eight left, right;
};
FN void eight_of(const float* norm, u32 channels, Eight& e) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float2 x = *(const float2*)(norm + 16 * j), y = *(const float2*)(norm + channels + 16 * j);
    e.scale[2 * j] = x.x, e.scale[2 * j + 1] = x.y, e.shift[2 * j] = y.x, e.shift[2 * j + 1] = y.y;
  }
}
/* A lane's two rows: of the channels' parts of 64, which are the same in every turn. */
FN u32 left_chunk(const Block& b, u32 quad) { return 2 * quad % b.chunks; }
FN u32 right_chunk(const Block& b, u32 quad) { return (2 * quad + 1) % b.chunks; }
FN Sixteen sixteen_of(const FinishArgs& f, const Block& b, u32 lane) {
  const float* norm = f.norm + b.image * 2 * f.channels + lane % 8 * 2;
  Sixteen s;
  eight_of(norm + left_chunk(b, lane / 8) * 64, f.channels, s.left), eight_of(norm + right_chunk(b, lane / 8) * 64, f.channels, s.right);
  return s;
}

/* Two numbers of each sixteen of a row. */
template <int FURTHER> FN void eight_at(const u32* at, float* v) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    u32 word;
    asm volatile("ld.shared.u32 %0, [%1 + %2];" : "=r"(word) : "r"(at[j]), "n"(FURTHER) : "memory");
    const float2 x = unpack(word);
    v[2 * j] = x.x, v[2 * j + 1] = x.y;
  }
}
FN void put_eight(const u32* at, const float* v) {
#pragma unroll
  for (int j = 0; j < 4; ++j) asm volatile("st.shared.u32 [%0], %1;" ::"r"(at[j]), "r"(pack(v[2 * j], v[2 * j + 1])) : "memory");
}
/* Norm, what came past, and activation. */
template <bool GELU, bool PAST> FN void activated(const FinishArgs& f, const u32* at, const Eight& e, float grow, float* v) {
  eight_at<0>(at, v);
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = fmaf(v[i], e.scale[i], e.shift[i]);
  if (PAST) {
    float more[8];
    eight_at<WIDE_BYTES>(at, more);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] += more[i];
  }
  if (!GELU) activate8(v, f.act);
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = GELU ? gelu_scaled(v[i], 0.5f * grow) : v[i] * grow;
}
/* Dropout of eight numbers by two words of two counters. */
FN void drop(float* v, u32 a, u32 next_a, u32 b, u32 next_b, u32 limit) {
  const u32 words[4] = {a, next_a, b, next_b};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const u32 word = words[i / 4 * 2 + i % 2];
    v[i] = (i & 2 ? word : word << 16) >= limit ? v[i] : 0.0f;
  }
}

/* A lane's numbers in the turn of a warp's eight rows from `row` on: where they lie, and what becomes of them. */
struct Turn {
  u32 left[4], right[4];
};
FN Turn turn_of(u32 tile, u32 row, u32 lane) {
  const u32 quad = lane / 8, two = lane % 8, at = tile + (row + 2 * quad) * 128 + ((two / 4 ^ 2 * quad) << 4) + two % 4 * 4;
  Turn t;
#pragma unroll
  for (int j = 0; j < 4; ++j) t.left[j] = at ^ (32 * j), t.right[j] = (at ^ (32 * j + 16)) + 128;
  return t;
}
template <bool GELU, bool PAST>
FN void finished(const FinishArgs& f, const Block& b, const Turn& t, u32 row, u32 lane, const Sixteen& s, const Rounds& rounds, u32 limit, float grow, float* v, float* w) {
  const u32 counter = ((b.first + row) / 2 + lane / 8) * 16 + lane % 8 * 2;
  const uint4 c = drawn_by(rounds, rounds.third, counter), d = drawn_by(rounds, rounds.third, counter + 1);
  activated<GELU, PAST>(f, t.left, s.left, grow, v), activated<GELU, PAST>(f, t.right, s.right, grow, w);
  drop(v, c.x, d.x, c.y, d.y, limit), drop(w, c.z, d.z, c.w, d.w, limit);
}

/* Pixels at a side of the image, once more at the other side; those at top or bottom leave twice as well. */
FN void repeat_sides(const FinishArgs& f, const Block& b, const u8* tile) {
  const u32 wide = f.side + 2 * f.border, octets = f.channels / 8, pixels = b.line / b.chunks, count = b.lines * 2 * f.border * octets;
  for (u32 i = threadIdx.x; i < count; i += WIDE_THREADS) {
    const u32 octet = i % octets, which = i / octets % (2 * f.border), line = i / octets / (2 * f.border);
    const u32 first = (b.first + line * b.line) / b.chunks, x0 = first & (f.side - 1), y = first >> f.log_side;
    const bool left = which < f.border;
    if (left ? x0 != 0 : x0 + pixels != f.side) continue;
    const u32 x = left ? which : f.side - 2 * f.border + which, row = line * b.line + (x - x0) * b.chunks + octet / 8;
    const uint4 words = *(const uint4*)(tile + row * 128 + ((octet % 8 ^ row % 8) << 4));
    const u32 to_x = left ? x + f.side + f.border : x - f.side + f.border;
    u8* out = f.out + ((u64)b.image * wide * wide * f.channels + octet * 8) * 2;
    *(uint4*)(out + (u64)((y + f.border) * wide + to_x) * f.channels * 2) = words;
    const int down = y < f.border ? (int)f.side : y >= f.side - f.border ? -(int)f.side : 0;
    if (down) *(uint4*)(out + (u64)((y + f.border + down) * wide + to_x) * f.channels * 2) = words;
  }
}

template <bool GELU, bool PAST>
FN void finish_rows(const FinishArgs& f, const Block& b, u32 tile, u32 lane, const Sixteen& s, const Rounds& rounds, u32 limit, float grow) {
#pragma unroll 1
  for (u32 row = threadIdx.x / 32 * 8; row < WIDE_ROWS; row += 32) {
    float v[8], w[8];
    const Turn t = turn_of(tile, row, lane);
    finished<GELU, PAST>(f, b, t, row, lane, s, rounds, limit, grow, v, w);
    put_eight(t.left, v), put_eight(t.right, w);
  }
}

extern "C" __global__ void __launch_bounds__(WIDE_THREADS, 6) finish_wide(const __grid_constant__ WideArgs a) {
  extern __shared__ u8 shared[];
  __shared__ __align__(8) u64 arrived;
  const FinishArgs& f = a.f;
  const u32 lane = threadIdx.x % 32, come = shared_address(&arrived);
  u8* room = shared + ((1024 - (shared_address(shared) & 1023)) & 1023);
  const u32 tile = shared_address(room);
  const Block b = block_of(f);
  if (threadIdx.x == 0) bring_rows(f, b, &a.y, &a.past, tile, come);
  const Rounds rounds = rounds_of(f, b.image);
  wait_before();
  let_next();
  const Sixteen s = sixteen_of(f, b, lane);
  const u32 dropped = f.dropped[b.image / f.rows_per_op];
  const float grow = 65536.0f / (65536 - dropped);
  __syncthreads();
  barrier_wait(come, 0);
  if (f.act != 4) f.past ? finish_rows<false, true>(f, b, tile, lane, s, rounds, dropped << 16, grow) : finish_rows<false, false>(f, b, tile, lane, s, rounds, dropped << 16, grow);
  else if (f.past) finish_rows<true, true>(f, b, tile, lane, s, rounds, dropped << 16, grow);
  else finish_rows<true, false>(f, b, tile, lane, s, rounds, dropped << 16, grow);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    for (u32 i = 0; i < b.lines; ++i) {
      const u32 y = (b.first + i * b.line) / b.chunks >> f.log_side, from = tile + i * b.line * 128;
      const u32 to = row_at(f, b, i, f.border), height = f.side * (f.side + 2 * f.border) * b.chunks;
      for (u32 twice = 0; twice < 2; ++twice) {
        if (twice && y >= f.border && y < f.side - f.border) break;
        const u32 row = !twice ? to : y < f.border ? to + height : to - height;
        asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %2, %2, %2}], [%1];" ::"l"(&a.out), "r"(from), "r"(0), "r"(row) : "memory");
      }
    }
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  }
  repeat_sides(f, b, room);
  if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/* White noise of eight numbers of a row, two of each sixteen. */
FN void disturb(const LastArgs& a, const Rounds& rounds, u32 third, u32 row, u32 two, float size, float* v) {
#pragma unroll
  for (u32 i = 0; i < 2; ++i) {
    const uint4 c = drawn_by(rounds, third, row * 16 + two * 2 + i);
    const float2 p = normals(c.x, c.y), q = normals(c.z, c.w);
    const float four[4] = {p.x, p.y, q.x, q.y};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float z = a.law == 1 ? to_laplace(four[j]) : four[j];
      v[2 * j + i] = a.law == 3 ? v[2 * j + i] * fmaf(z, size, 1.0f) : fmaf(z, size, v[2 * j + i]);
    }
  }
}

/* Of 2 COUNT values of two lanes: sums of those COUNT that this lane keeps. */
template <int COUNT>
FN void halve(float* v, u32 lane, u32 step) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const bool upper = lane & step;
    const float given = upper ? v[i] : v[i + COUNT], kept = upper ? v[i + COUNT] : v[i];
    v[i] = kept + __shfl_xor_sync(~0u, given, step);
  }
}

/* Normals of the field's numbers of a block, those of its pixels in a row, for Gaussian noise behind the way back. */
FN void draw_behind(const Rounds& rounds, u32 third, u32 first, u32 count, float* noise) {
  const u32 before = first % 64, counters = (before + count + 63) / 64 * 16;
  for (u32 i = threadIdx.x; i < counters; i += WIDE_THREADS) {
    const uint4 w = drawn_by(rounds, third, first / 64 * 16 + i);
    float2 p = normals(w.x, w.y), q = normals(w.z, w.w);
    const float four[4] = {p.x, p.y, q.x, q.y};
#pragma unroll
    for (u32 j = 0; j < 4; ++j) {
      const u32 at = i / 16 * 64 + j * 16 + i % 16 - before;
      if (at < count) noise[at] = four[j];
    }
  }
}

/* `finish_last` for at most four channels of the field: with white noise by number, or BEHIND the way back. */
template <bool BEHIND, bool GELU, bool PAST> FN void last(const WideLastArgs& args) {
  extern __shared__ u8 shared[];
  const LastArgs& a = args.l;
  const FinishArgs& f = a.f;
  const u32 lane = threadIdx.x % 32, quad = lane / 8, two = lane % 8;
  u8* room = shared + ((1024 - (shared_address(shared) & 1023)) & 1023);
  /* Weights of a lane's numbers together: [part of channels][channel of the field][half of eight][lane of eight]. */
  auto weights = (float4(*)[4][2][8])(room + 2 * WIDE_BYTES);
  float* noise = (float*)(room + 2 * WIDE_BYTES + 4096);
  const u32 tile = shared_address(room), come = shared_address(noise + 512);
  const Block b = block_of(f);
  if (threadIdx.x == 0) bring_rows(f, b, &args.y, &args.past, tile, come);
  const Rounds rounds = rounds_of(f, b.image);
  const u32 op = b.image / f.rows_per_op, dropped = f.dropped[op], time = *f.clock;
  u32 third = rounds.third ^ f.layer ^ a.noise_layer;
  const float grow = 65536.0f / (65536 - dropped), size = a.scales[op * (a.steps + 1) + min(time, a.steps)].x;
  const float2 update = a.update[op];
  for (u32 i = threadIdx.x; i < b.chunks * a.field_channels * 64; i += WIDE_THREADS) {
    const u32 channel = i % f.channels, k = i / f.channels, place = channel % 64;
    ((float*)&weights[channel / 64][k][place / 32][place % 16 / 2])[place / 16 % 2 * 2 + place % 2] = a.weight[(op * a.field_channels + k) * f.channels + channel];
  }
  /* A lane writes one number: of two pixels of 64 channels, or of one of more. */
  const u32 log_chunks = f.log_channels - 6, own = b.chunks == 1 ? two % 4 : two;
  const bool writes = own < a.field_channels && (b.chunks == 1 || two < 4) && (b.chunks < 4 || quad % 2 == 0);
  const float bias = writes ? a.bias[op * a.field_channels + own] : 0.0f;
  float factor[4];
#pragma unroll
  for (u32 i = 0; i < 4; ++i) factor[i] = BEHIND && writes && i <= own ? a.factor[(op * a.field_channels + own) * a.field_channels + i] : 0.0f;
  const u32 pixels = WIDE_ROWS >> log_chunks, from = b.first >> log_chunks;
  const u64 state = ((u64)b.image * f.side * f.side + from) * a.field_channels;
  if (BEHIND && a.correlated) {
    for (u32 i = threadIdx.x; i < pixels * a.field_channels; i += WIDE_THREADS) noise[i] = a.correlated[state + i];
  } else if (BEHIND) {
    draw_behind(rounds, third, from * a.field_channels, pixels * a.field_channels, noise);
  }
  wait_before();
  const Sixteen s = sixteen_of(f, b, lane);
  __syncthreads();
  barrier_wait(come, 0);
#pragma unroll 1
  for (u32 row = threadIdx.x / 32 * 8; row < WIDE_ROWS; row += 32) {
    const u32 pixel = (row + 2 * quad + (b.chunks == 1 ? two / 4 : 0)) >> log_chunks, number = pixel * a.field_channels + own;
    const float before = writes && !a.output ? a.state[state + number] : 0.0f;
    float v[8], w[8], sums[8] = {};
    finished<GELU, PAST>(f, b, turn_of(tile, row, lane), row, lane, s, rounds, dropped << 16, grow, v, w);
    if (!BEHIND) disturb(a, rounds, third, b.first + row + 2 * quad, two, size, v), disturb(a, rounds, third, b.first + row + 2 * quad + 1, two, size, w);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (k >= a.field_channels) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float4 p = weights[left_chunk(b, quad)][k][half][two], q = weights[right_chunk(b, quad)][k][half][two];
        const float *x = v + half * 4, *z = w + half * 4;
        sums[k] = fmaf(p.w, x[3], fmaf(p.z, x[2], fmaf(p.y, x[1], fmaf(p.x, x[0], sums[k]))));
        sums[4 + k] = fmaf(q.w, z[3], fmaf(q.z, z[2], fmaf(q.y, z[1], fmaf(q.x, z[0], sums[4 + k]))));
      }
    }
    if (b.chunks == 1) {
      halve<4>(sums, lane, 4), halve<2>(sums, lane, 2), halve<1>(sums, lane, 1);
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) sums[k] += sums[4 + k];
      halve<2>(sums, lane, 2), halve<1>(sums, lane, 1);
      sums[0] += __shfl_xor_sync(~0u, sums[0], 4);
      if (b.chunks > 2) sums[0] += __shfl_xor_sync(~0u, sums[0], 8);
    }
    if (writes) {
      float sum = sums[0] + bias;
      if (BEHIND) {
        /* What L makes of the pixel's normals, as `mixed` does. */
        float made = 0.0f;
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
          if (i < a.field_channels) made = fmaf(factor[i], noise[pixel * a.field_channels + i], made);
        }
        sum = fmaf(size, made, sum);
      }
      moved(a, time, state + number, before, sum, update);
    }
  }
}

template <bool BEHIND> FN void last_of(const WideLastArgs& a) {
  if (a.l.f.act != 4) a.l.f.past ? last<BEHIND, false, true>(a) : last<BEHIND, false, false>(a);
  else if (a.l.f.past) last<BEHIND, true, true>(a);
  else last<BEHIND, true, false>(a);
}
extern "C" __global__ void __launch_bounds__(WIDE_THREADS, 4) last_wide(const __grid_constant__ WideLastArgs a) { last_of<false>(a); }
extern "C" __global__ void __launch_bounds__(WIDE_THREADS, 5) last_behind(const __grid_constant__ WideLastArgs a) { last_of<true>(a); }
#endif
