/* What lies between convolutions of 64, 128 or 256 channels: `finish` and `finish_last` for numbers of two bytes.

   A warp takes 256 numbers in a row at a time, a lane eight of them, always the same channels, in one row of the image. Those numbers' Philox counters, 32
   of dropout and 64 of noise, are shared evenly among lanes; what they give goes by shared memory to the lanes that need it.
   Loops are not unrolled: threads that run through long code wait for it. */
#if KIND < 2
#define WIDE_THREADS 128
/* Words of 128 numbers, or noise of 64, padded so that two of them lie in different banks. */
#define PADDED 80

FN void put(u32 at, uint4 w) {
  asm volatile("st.shared.u32 [%0], %1;\nst.shared.u32 [%0 + 64], %2;\nst.shared.u32 [%0 + 128], %3;\nst.shared.u32 [%0 + 192], %4;" ::"r"(at),
               "r"(w.x), "r"(w.y), "r"(w.z), "r"(w.w)
               : "memory");
}
FN uint4 got(u32 at) {
  uint4 w;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w) : "r"(at) : "memory");
  return w;
}

/* Philox's keys of all rounds, which lie in shared memory: threads would add them up again at every turn. And the realisation. */
struct Keys {
  u32 rounds, row, time;
};
FN Keys keys_of(const FinishArgs& f, u32 image, u32* rounds) {
  const u32* key = f.keys + 4 * image;
  if (threadIdx.x < 20) rounds[threadIdx.x] = key[threadIdx.x % 2] + threadIdx.x / 2 * (threadIdx.x % 2 ? 0xBB67AE85u : 0x9E3779B9u);
  __syncthreads();
  return Keys{shared_address(rounds), key[2], *f.clock};
}
FN uint4 drawn_at(const Keys& k, u32 counter, u32 layer) {
  uint4 c = make_uint4(counter, k.row, k.time, layer);
#pragma unroll
  for (int i = 0; i < 5; ++i) {
    const uint4 two = got(k.rounds + 16 * i);
    u64 a = (u64)c.x * 0xD2511F53u, b = (u64)c.z * 0xCD9E8D57u;
    c = make_uint4((u32)(b >> 32) ^ c.y ^ two.x, (u32)b, (u32)(a >> 32) ^ c.w ^ two.y, (u32)a);
    a = (u64)c.x * 0xD2511F53u, b = (u64)c.z * 0xCD9E8D57u;
    c = make_uint4((u32)(b >> 32) ^ c.y ^ two.z, (u32)b, (u32)(a >> 32) ^ c.w ^ two.w, (u32)a);
  }
  return c;
}

/* Where a lane is: eight numbers of an image from `number` on, 256 further with each turn. */
struct Mine {
  u32 image, number, lane;
};
FN Mine mine(const FinishArgs& f) {
  const u32 log_blocks = 2 * f.log_side + f.log_channels - 13;
  Mine m;
  m.image = blockIdx.x >> log_blocks, m.lane = threadIdx.x % 32;
  m.number = (blockIdx.x & ((1u << log_blocks) - 1)) * 8192 + threadIdx.x / 32 * 2048 + m.lane * 8;
  return m;
}

/* Computed once: the compiler would do it again each turn to save registers. */
template <typename T> FN void hold(T& x) { asm volatile("" : "+l"(x)); }
FN void hold(u32& x) { asm volatile("" : "+r"(x)); }

/* Where a lane reads results and what comes past them, and its place in the bordered image, in bytes. All of a warp's pixels are in
   one row, so the next turn's are 512 bytes further on everywhere. */
struct Way {
  const u8 *result, *past;
  u64 at;
  u32 column, row;
};
FN Way way(const FinishArgs& f, const Mine& m, u32 channel) {
  const u32 pixel = m.number >> f.log_channels;
  Way w;
  w.row = pixel >> f.log_side, w.column = pixel & (f.side - 1);
  w.at = ((u64)((w.row + f.border) * (f.side + 2 * f.border) + w.column + f.border) * f.channels + channel) * 2;
  w.result = result_of(f, m.image) + (u64)m.number * 2;
  w.past = f.past ? past_of(f, m.image) + (f.past_is_activation ? w.at : (u64)m.number * 2) : nullptr;
  hold(w.result), hold(w.past), hold(w.column);
  return w;
}
FN uint4 past_at(const Way& w, u32 turn) { return w.past ? *(const uint4*)(w.past + 512 * turn) : make_uint4(0, 0, 0, 0); }
FN uint4 result_at(const Way& w, u32 turn) { return __ldcs((const uint4*)(w.result + 512 * turn)); }

FN void eight_of(uint4 words, float* x) {
  Raw raw;
  raw.words[0] = words;
  unpack8(raw, x);
}

FN void eight_at(const float* from, float* x) {
  float4 a = ((const float4*)from)[0], b = ((const float4*)from)[1];
  x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
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

/* Words of dropout for a warp's numbers, [128 numbers of two][word][counter of 16], two turns' in turn: where a lane writes and reads
   them, and what its own are shifted by. Two steps of 16 numbers share a word. */
#define TURN_BYTES (2 * PADDED * 4)
struct Words {
  u32 write, read, left, counter;
};
FN Words words_of(const Mine& m, const u32* drawn) {
  const u32 at = shared_address(drawn) + threadIdx.x / 32 * 2 * TURN_BYTES + m.lane / 16 * PADDED * 4, step = m.lane % 16 / 2;
  Words w{at + m.lane % 16 * 4, at + step / 2 * 64 + m.lane % 2 * 32, step % 2 ? 0u : 16u, m.number / 256 * 32 + m.lane};
  hold(w.write), hold(w.read), hold(w.left), hold(w.counter);
  return w;
}
FN void draw_words(const FinishArgs& f, const Words& w, u32 turn, const Keys& keys) {
  put(w.write + turn % 2 * TURN_BYTES, drawn_at(keys, w.counter + turn * 32, f.layer));
}

/* Norm, what came past, activation, dropout of eight numbers. */
FN void finished(const FinishArgs& f, uint4 y, uint4 past, const Eight& e, const Words& words, u32 turn, u32 limit, float grow, float* v) {
  eight_of(y, v);
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = fmaf(v[i], e.scale[i], e.shift[i]);
  if (f.past) {
    float more[8];
    eight_of(past, more);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] += more[i];
  }
  if (f.act == 4) {
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = gelu_scaled(v[i], 0.5f * grow);
  } else {
    activate8(v, f.act);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] *= grow;
  }
  if (limit) {
    const u32 at = words.read + turn % 2 * TURN_BYTES;
    const uint4 a = got(at), b = got(at + 16);
    const u32 w[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = w[i] << words.left >= limit ? v[i] : 0.0f;
  }
}

extern "C" __global__ void __launch_bounds__(WIDE_THREADS, 7) finish_wide(const __grid_constant__ FinishArgs f) {
  __shared__ __align__(16) u32 drawn[WIDE_THREADS / 32][2][2 * PADDED], rounds[20];
  const Mine m = mine(f);
  const u32 channel = m.number & (f.channels - 1), wide = f.side + 2 * f.border;
  const Way w = way(f, m, channel);
  const float* norm = f.norm + m.image * 2 * f.channels + channel;
  Eight e;
  eight_at(norm, e.scale), eight_at(norm + f.channels, e.shift);
  const u32 dropped = f.dropped[m.image / f.rows_per_op];
  const Keys keys = keys_of(f, m.image, rounds);
  const Words words = words_of(m, drawn[0][0]);
  const float grow = 65536.0f / (65536 - dropped);
  const u32 bytes = 2 * f.channels, per_turn = 256 >> f.log_channels;
  u8* out = f.out + (u64)m.image * wide * wide * bytes + w.at;
  /* The border repeats the image from its other side: so many bytes from here. */
  const int down = w.row < f.border ? 1 : w.row >= f.side - f.border ? -1 : 0;
  long long below = down * (long long)(f.side * wide * bytes);
  u32 across = f.side * bytes, inner = f.side - 2 * f.border;
  hold(out), hold(below), hold(across), hold(inner);
  uint4 y = result_at(w, 0), more = past_at(w, 0);
#pragma unroll 1
  for (u32 turn = 0; turn < 8; ++turn) {
    const uint4 now = y, beside = more;
    const u32 next = min(turn + 1, 7);
    y = result_at(w, next), more = past_at(w, next);
    if (dropped) draw_words(f, words, turn, keys);
    __syncwarp();
    float v[8];
    finished(f, now, beside, e, words, turn, dropped << 16, grow, v);
    const uint4 packed = pack8(v).words[0];
    u8* to = out + 512 * turn;
    *(uint4*)to = packed;
    const u32 column = w.column + turn * per_turn;
    const bool edge = column - f.border >= inner;
    if (edge | (below != 0)) {
      const long long right = column < f.border ? (long long)across : -(long long)across;
      if (below) *(uint4*)(to + below) = packed;
      if (edge) *(uint4*)(to + right) = packed;
      if (below && edge) *(uint4*)(to + below + right) = packed;
    }
  }
}

/* Noise of a warp's numbers, in their order. */
FN void draw_noise(const LastArgs& a, const Mine& m, u32 turn, const Keys& keys, float* noise) {
#pragma unroll
  for (u32 i = 0; i < 2; ++i) {
    uint4 w = drawn_at(keys, (m.number / 256 + turn) * 64 + 32 * i + m.lane, a.noise_layer);
    float2 p = normals(w.x, w.y), q = normals(w.z, w.w);
    if (a.law == 1) p.x = to_laplace(p.x), p.y = to_laplace(p.y), q.x = to_laplace(q.x), q.y = to_laplace(q.y);
    float* to = noise + (2 * i + m.lane / 16) * PADDED + m.lane % 16;
    to[0] = p.x, to[16] = p.y, to[32] = q.x, to[48] = q.y;
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
FN void draw_behind(const LastArgs& a, const Keys& keys, u32 first, u32 count, float* noise) {
  const u32 before = first % 64, counters = (before + count + 63) / 64 * 16;
  for (u32 i = threadIdx.x; i < counters; i += WIDE_THREADS) {
    uint4 w = drawn_at(keys, first / 64 * 16 + i, a.noise_layer);
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
template <bool BEHIND> FN void last(const LastArgs& a) {
  __shared__ __align__(16) u32 drawn[WIDE_THREADS / 32][2][2 * PADDED], rounds[20];
  __shared__ __align__(16) float noises[BEHIND ? 1 : WIDE_THREADS / 32][2][BEHIND ? 256 : 4 * PADDED];
  const FinishArgs& f = a.f;
  const Mine m = mine(f);
  const u32 channel = m.number & (f.channels - 1);
  const Way w = way(f, m, channel);
  const float* norm = f.norm + m.image * 2 * f.channels + channel;
  Eight e;
  eight_at(norm, e.scale), eight_at(norm + f.channels, e.shift);
  const u32 op = m.image / f.rows_per_op, dropped = f.dropped[op];
  const Keys keys = keys_of(f, m.image, rounds);
  const Words words = words_of(m, drawn[0][0]);
  const u32 time = keys.time;
  const float grow = 65536.0f / (65536 - dropped), size = a.scales[op * (a.steps + 1) + min(time, a.steps)].x;
  const float2 update = a.update[op];
  float weight[4][8];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int i = 0; i < 8; ++i) weight[k][i] = 0.0f;
    if (k < a.field_channels) eight_at(a.weight + (op * a.field_channels + k) * f.channels + channel, weight[k]);
  }
  uint4 y = result_at(w, 0), more = past_at(w, 0);
  /* Lanes of a pixel, 8 to 32: the first four write a channel each. */
  const u32 own = m.lane % 2 * 2 + m.lane / 2 % 2, lanes = f.channels / 8, pixel = m.number >> f.log_channels;
  const bool writes = (m.lane & (lanes - 1)) < 4 && own < a.field_channels;
  u64 first = ((u64)m.image * f.side * f.side + pixel) * a.field_channels + own;
  hold(first);
  const u32 per_turn = (256 >> f.log_channels) * a.field_channels;
  const float bias = writes ? a.bias[op * a.field_channels + own] : 0.0f;
  const float* behind = nullptr;
  if (BEHIND) {
    /* 128 pixels or fewer. */
    const u32 pixels = 8192 >> f.log_channels, from = pixel / pixels * pixels;
    behind = a.correlated ? a.correlated + first - own : noises[0][0] + (pixel - from) * a.field_channels;
    if (!a.correlated) draw_behind(a, keys, from * a.field_channels, pixels * a.field_channels, noises[0][0]);
    __syncthreads();
  }
#pragma unroll 1
  for (u32 turn = 0; turn < 8; ++turn) {
    const uint4 now = y, beside = more;
    const u32 next = min(turn + 1, 7);
    y = result_at(w, next), more = past_at(w, next);
    const u64 to = first + turn * per_turn;
    const float before = writes && !a.output ? a.state[to] : 0.0f;
    float* noise = noises[BEHIND ? 0 : threadIdx.x / 32][turn % 2];
    if (dropped) draw_words(f, words, turn, keys);
    if (!BEHIND) draw_noise(a, m, turn, keys, noise);
    __syncwarp();
    float v[8], sums[4];
    finished(f, now, beside, e, words, turn, dropped << 16, grow, v);
    if (!BEHIND) {
      float z[8];
      eight_at(noise + m.lane / 8 * PADDED + m.lane % 8 * 8, z);
#pragma unroll
      for (int i = 0; i < 8; ++i) v[i] = a.law == 3 ? v[i] * fmaf(z[i], size, 1.0f) : fmaf(z[i], size, v[i]);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      sums[k] = 0.0f;
      if (k >= a.field_channels) continue;
#pragma unroll
      for (int i = 0; i < 8; ++i) sums[k] = fmaf(weight[k][i], v[i], sums[k]);
    }
    halve<2>(sums, m.lane, 1), halve<1>(sums, m.lane, 2);
    sums[0] += __shfl_xor_sync(~0u, sums[0], 4);
    if (lanes > 8) sums[0] += __shfl_xor_sync(~0u, sums[0], 8);
    if (lanes > 16) sums[0] += __shfl_xor_sync(~0u, sums[0], 16);
    if (writes) {
      float sum = sums[0] + bias;
      if (BEHIND) sum = fmaf(size, mixed(a, op, own, behind + turn * per_turn), sum);
      moved(a, time, to, before, sum, update);
    }
  }
}

extern "C" __global__ void __launch_bounds__(WIDE_THREADS, 4) last_wide(const __grid_constant__ LastArgs a) { last<false>(a); }
extern "C" __global__ void __launch_bounds__(WIDE_THREADS, 5) last_behind(const __grid_constant__ LastArgs a) { last<true>(a); }
#endif
