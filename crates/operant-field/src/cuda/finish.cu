/* What lies between convolutions: norm, activation, dropout, noise, and the way back to the field.

   Random bits are those of the CPU's ops (nn/noise.rs, nn/ops/keyed_noise.rs): Philox counters of (block, realisation, time, layer). A
   block of threads takes 128 pixels of one image and draws for them in the order of counters into shared memory. */
#define PIXELS 128
#define MOST_CHANNELS 512

struct FinishArgs {
  const u8* y;           /* [B, H, W, padded] */
  const u8* past;        /* like y, or an activation; or none */
  u8* out;               /* [B, H + 2 border, W + 2 border, PLANES, padded] */
  const float* norm;     /* [B, 2, padded]: scales and shifts */
  const u32* keys;       /* [B, 4] */
  const u32* clock;      /* time, of this step */
  const u32* dropped;    /* [operators]: of 65,536 */
  u32 side, channels, padded, border, past_is_activation, log_channels, layer, act, rows_per_op, octets, log_side, images;
};
static_assert(sizeof(FinishArgs) == FINISH_BYTES, "as in Rust");

struct LastArgs {
  FinishArgs f;
  const float* weight;  /* [operators, field channels, padded] */
  const uint4* by_lane; /* the same as lanes of `last.cu` read them: [operators, parts of 64 channels, 32]; or none */
  const float* bias;    /* [operators, field channels] */
  const float2* scales; /* [operators, steps + 1]: scale, or threshold and growth of dropout */
  const float* factor;  /* [operators, field channels, field channels]: what the way back makes of Gaussian noise */
  const float* correlated; /* [B, H, W, channels], of Gaussian noise the field's; or none */
  const float2* update; /* [operators]: coefficients of x and O(x) */
  float* state;         /* [B, H, W, field channels] */
  float* output;        /* O(x) of the same shape, or none: the state moves */
  float* trace;         /* [trace_slots, state's shape]: states by time, or none */
  u64 state_len;
  float clamp;
  u32 field_channels, law, noise_layer, steps, lanes, trace_slots, unused;
};
static_assert(sizeof(LastArgs) == LAST_BYTES, "as in Rust");

FN uint4 philox(uint4 c, u32 k0, u32 k1) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    u64 a = (u64)c.x * 0xD2511F53u, b = (u64)c.z * 0xCD9E8D57u;
    c = make_uint4((u32)(b >> 32) ^ c.y ^ k0, (u32)b, (u32)(a >> 32) ^ c.w ^ k1, (u32)a);
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return c;
}

/* nn/noise.rs, normals */
FN float2 normals(u32 a, u32 b) {
  int bits = __float_as_int((float)(int)((a >> 8) + 1));
  int e = (bits - 0x3f3504f3) >> 23;
  float r = __int_as_float(bits - (e << 23)) - 1.0f;
  float p = fmaf(fmaf(fmaf(r, -0.10378718f, 0.16338152f), r, -0.17212428f), r, 0.19884235f);
  p = fmaf(fmaf(fmaf(fmaf(p, r, -0.2497156f), r, 0.33335608f), r, -0.50000346f), r, 0.99999994f);
  float log = fmaf((float)(e - 24), 0.69314718f, p * r);
  float squared = fmaxf(log * -2.0f, 0.0f);
  float radius = squared * rsqrtf(fmaxf(squared, 1e-12f));
  float angle = (float)((int)b >> 8) * (0.78539816f / 8388608.0f);
  float z = angle * angle;
  float sine = fmaf(fmaf(fmaf(z, 2.755732e-6f, -1.984127e-4f), z, 8.333333e-3f), z, -1.6666667e-1f);
  sine = fmaf(sine * z, angle, angle);
  float cosine = fmaf(fmaf(fmaf(z, 2.480159e-5f, -1.388889e-3f), z, 4.1666667e-2f), z, -0.5f);
  cosine = __int_as_float(__float_as_int(fmaf(cosine, z, 1.0f)) ^ (int)(b << 31));
  return (b & 2) ? make_float2(radius * sine, radius * cosine) : make_float2(radius * cosine, radius * sine);
}

/* nn/ops/keyed_noise.rs, ToLaplace */
FN float to_laplace(float z) {
  float x = fabsf(z) * 0.70710678f;
  float t = 1.0f / fmaf(x, 0.5f, 1.0f);
  float p = fmaf(fmaf(fmaf(t, 0.17087276f, -0.82215226f), t, 1.4885159f), t, -1.135204f);
  p = fmaf(fmaf(fmaf(p, t, 0.27886808f), t, -0.18628806f), t, 0.09678418f);
  p = fmaf(fmaf(fmaf(p, t, 0.37409195f), t, 1.0000237f), t, -1.2655122f);
  float size = fmaxf(fmaf(x, x, -p) - logf(t), 0.0f);
  return z < 0.0f ? -size : size;
}

/* e^x, within 2e-7 of itself. */
FN float exponential(float x) {
  float scaled = x * 1.44269504f, result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(scaled));
  return result;
}
FN float reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/* x Φ(x); erf within 1.5e-7 (Abramowitz & Stegun, 7.1.26). */
FN float gelu(float x) {
  float z = fabsf(x) * 0.70710678f, t = reciprocal(fmaf(z, 0.3275911f, 1.0f));
  float p = fmaf(fmaf(fmaf(fmaf(t, 1.061405429f, -1.453152027f), t, 1.421413741f), t, -0.284496736f), t, 0.254829592f);
  float tail = 0.5f * p * t * exponential(-z * z);
  return x * (x < 0.0f ? tail : 1.0f - tail);
}

/* By the number of an activation; one branch for all eight. */
FN void activate8(float* v, u32 act) {
#define EACH(f) _Pragma("unroll") for (int i = 0; i < 8; ++i) v[i] = f
  switch (act) {
    case 1: EACH(v[i] > 0.0f || v[i] != v[i] ? v[i] : 0.0f); break;
    case 2: EACH(tanhf(v[i])); break;
    case 3: EACH(reciprocal(1.0f + exponential(-v[i]))); break;
    case 4: EACH(gelu(v[i])); break;
    case 5: EACH(v[i] * reciprocal(1.0f + exponential(-v[i]))); break;
  }
#undef EACH
}

/* Scales and shifts of all channels of an image. */
FN void coefficients(const FinishArgs& f, u32 image, float* scale, float* shift) {
  const float* from = f.norm + (u64)image * 2 * f.padded;
  for (u32 c = threadIdx.x; c < f.padded; c += blockDim.x) scale[c] = from[c], shift[c] = from[f.padded + c];
  __syncthreads();
}

/* One bit per number of 128 pixels, 0 where it is dropped. */
FN void draw_kept(const FinishArgs& f, u32 image, u32 first_pixel, u32 dropped, u16* kept) {
  const u32* key = f.keys + 4 * image;
  const u32 lane = threadIdx.x % 32, time = *f.clock;
  const u32 first = first_pixel / 128 * f.channels * 16, count = f.channels * 16;
  for (u32 i = threadIdx.x; i < (count + 31) / 32 * 32; i += blockDim.x) {
    uint4 words = philox(make_uint4(first + i, key[2], time, f.layer), key[0], key[1]);
    u32 mine = 0;
    const u32 halves[8] = {words.x & 0xffff, words.x >> 16, words.y & 0xffff, words.y >> 16,
                           words.z & 0xffff, words.z >> 16, words.w & 0xffff, words.w >> 16};
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      u32 all = __ballot_sync(~0u, halves[j] >= dropped);
      if (lane % 16 == j) mine = all;
    }
    if (lane % 16 < 8 && i / 16 < f.channels) kept[i / 16 * 8 + lane % 16] = lane < 16 ? mine : mine >> 16;
  }
}

FN u32 kept8(const u8* kept, u32 bit) {
  const u8* at = kept + bit / 8;
  return (at[0] | at[1] << 8) >> (bit % 8);
}

/* Scales and shifts of eight channels. */
struct Eight {
  float scale[8], shift[8];
};
FN Eight eight(const float* scale, const float* shift, u32 octet) {
  Eight e;
#pragma unroll
  for (int i = 0; i < 8; ++i) e.scale[i] = scale[octet * 8 + i], e.shift[i] = shift[octet * 8 + i];
  return e;
}

/* Eight channels of a pixel: norm, what came past, activation, dropout. Offsets are within an image. Channels that only fill up
   have scale 0 and meet weights that are 0. */
FN void finished8(const FinishArgs& f, const Raw& raw, const u8* past, u32 pixel, u32 wide_pixel, u32 octet, const Eight& e, u32 bits, float grow, float* v) {
  unpack8(raw, v);
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = fmaf(v[i], e.scale[i], e.shift[i]);
  if (past) {
    float more[8];
    if (f.past_is_activation) read8_planes(past + (wide_pixel * PLANES * f.padded + octet * 8) * BYTES, f.padded * BYTES, more);
    else read8(past + (pixel * f.padded + octet * 8) * BYTES, more);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] += more[i];
  }
  activate8(v, f.act);
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = bits >> i & 1 ? v[i] * grow : 0.0f;
}

/* Where an image's results begin, and what comes past them. */
FN const u8* result_of(const FinishArgs& f, u64 image) { return f.y + image * f.side * f.side * f.padded * BYTES; }
FN const u8* past_of(const FinishArgs& f, u64 image) {
  if (!f.past) return nullptr;
  const u64 wide = f.side + 2 * f.border;
  return f.past + (f.past_is_activation ? image * wide * wide * PLANES : image * f.side * f.side) * f.padded * BYTES;
}

extern "C" __global__ void __launch_bounds__(256) finish(const __grid_constant__ FinishArgs f) {
  __shared__ __align__(16) float scale[MOST_CHANNELS], shift[MOST_CHANNELS];
  __shared__ u16 kept[MOST_CHANNELS * 8 + 2];
  const u32 per_image = f.side * f.side / PIXELS, image = blockIdx.x / per_image, first = blockIdx.x % per_image * PIXELS;
  const u32 dropped = f.dropped[image / f.rows_per_op];
  const u32 wide = f.side + 2 * f.border, pixel_bytes = PLANES * f.padded * BYTES, at_once = 256 / f.octets;
  const u32 octet = threadIdx.x % f.octets;
  /* What comes next is read before it is needed. */
  const u8 *result = result_of(f, image) + octet * 8 * BYTES, *past = past_of(f, image);
  Raw next = raw8(result + (first + min(threadIdx.x / f.octets, PIXELS - 1)) * f.padded * BYTES);
  if (dropped) draw_kept(f, image, first, dropped, kept);
  coefficients(f, image, scale, shift);
  const float grow = 65536.0f / (65536 - dropped);
  if (threadIdx.x >= at_once * f.octets) return;
  const Eight e = eight(scale, shift, octet);
  u8* out = f.out + (u64)image * wide * wide * pixel_bytes + octet * 8 * BYTES;
  for (u32 local = threadIdx.x / f.octets; local < PIXELS; local += at_once) {
    const u32 pixel = first + local, y = pixel >> f.log_side, x = pixel & (f.side - 1);
    const u32 at = (y + f.border) * wide + x + f.border;
    float v[8];
    u32 bits = dropped ? kept8((const u8*)kept, local * f.channels + octet * 8) : 255;
    const Raw raw = next;
    next = raw8(result + min(pixel + at_once, first + PIXELS - 1) * f.padded * BYTES);
    finished8(f, raw, past, pixel, at, octet, e, bits, grow, v);
    Packed packed = pack8(v);
    write8(out + at * pixel_bytes, f.padded * BYTES, packed);
    /* The border repeats the image from its other side. */
    const int down = y < f.border ? 1 : y >= f.side - f.border ? -1 : 0, right = x < f.border ? 1 : x >= f.side - f.border ? -1 : 0;
    if (down | right) {
      const u32 below = at + down * (int)(f.side * wide), beside = at + right * (int)f.side;
      if (down) write8(out + below * pixel_bytes, f.padded * BYTES, packed);
      if (right) write8(out + beside * pixel_bytes, f.padded * BYTES, packed);
      if (down && right) write8(out + (below + beside - at) * pixel_bytes, f.padded * BYTES, packed);
    }
  }
}

/* Four normals of each counter from `first` on, in the order of elements. */
FN void draw_normals(const u32* key, u32 time, u32 layer, u32 first, u32 counters, float* to) {
  for (u32 i = threadIdx.x; i < counters; i += 256) {
    uint4 words = philox(make_uint4(first + i, key[2], time, layer), key[0], key[1]);
    float2 p = normals(words.x, words.y), q = normals(words.z, words.w);
    float* at = to + i / 16 * 64 + i % 16;
    at[0] = p.x, at[16] = p.y, at[32] = q.x, at[48] = q.y;
  }
}

/* Channel k of Gaussian noise behind the way back, by normals of a pixel: what L makes of them, where L Lᵀ is W Wᵀ. */
FN float mixed(const LastArgs& a, u32 op, u32 k, const float* normals) {
  const float* row = a.factor + (op * a.field_channels + k) * a.field_channels;
  float sum = 0.0f;
  for (u32 i = 0; i <= k; ++i) sum = fmaf(__ldg(row + i), normals[i], sum);
  return sum;
}

/* Noise of eight channels by normals z; Gaussian noise comes behind the way back. */
FN void disturb8(float* v, const float* z, u32 law, float2 noise) {
#define EACH(f) _Pragma("unroll") for (int i = 0; i < 8; ++i) v[i] = f
  switch (law) {
    case 1: EACH(fmaf(to_laplace(z[i]), noise.x, v[i])); break;
    case 2: EACH(z[i] < noise.x ? 0.0f : v[i] * noise.y); break;
    default: EACH(v[i] * fmaf(z[i], noise.x, 1.0f));
  }
#undef EACH
}

/* A number of O(x) and of the field before becomes the field's. */
FN void moved(const LastArgs& a, u32 time, u64 to, float before, float sum, float2 update) {
  if (a.output) {
    a.output[to] = sum;
    return;
  }
  float after = update.x == 0.0f ? update.y * sum : fmaf(update.x, before, update.y * sum);
  /* A number that is not finite stays so. */
  if (a.clamp > 0.0f && after == after) after = fminf(fmaxf(after, -a.clamp), a.clamp);
  a.state[to] = after;
  if (a.trace) a.trace[time % a.trace_slots * a.state_len + to] = after;
}

/* The last layer, noise, the 1x1 convolution to the field's channels, and the step. A pixel is shared by `lanes` threads. */
extern "C" __global__ void __launch_bounds__(256, 2) finish_last(const __grid_constant__ LastArgs a) {
  extern __shared__ u8 shared[];
  __shared__ __align__(16) float scale[MOST_CHANNELS], shift[MOST_CHANNELS];
  __shared__ u16 kept[MOST_CHANNELS * 8 + 2];
  float* drawn = (float*)shared;
  const FinishArgs& f = a.f;
  const u32 per_image = f.side * f.side / PIXELS, image = blockIdx.x / per_image, first = blockIdx.x % per_image * PIXELS;
  const u32 op = image / f.rows_per_op, dropped = f.dropped[op], time = *f.clock, wide = f.side + 2 * f.border;
  const u32* key = f.keys + 4 * image;
  const float2 noise = a.scales[op * (a.steps + 1) + min(time, a.steps)], update = a.update[op];
  const bool behind = a.law == 0, by_channel = a.law == 2 && !a.correlated, white = !behind && a.law != 2 && !a.correlated;
  if (dropped) draw_kept(f, image, first, dropped, kept);
  if (behind && !a.correlated) draw_normals(key, time, a.noise_layer, first / 64 * a.field_channels * 16, 2 * a.field_channels * 16, drawn);
  if (by_channel) draw_normals(key, time, a.noise_layer, 0, (f.channels + 63) / 64 * 16, drawn);
  coefficients(f, image, scale, shift);
  const float grow = 65536.0f / (65536 - dropped);
  const u32 lane = threadIdx.x % a.lanes, groups = 256 / a.lanes;
  const u8 *result = result_of(f, image), *past = past_of(f, image);
  const u64 base = (u64)image * f.side * f.side;
  const bool whole = f.channels % 8 == 0;
  /* Octets that hold channels. Padding beyond them meets weights of 0, and has no noise to read. */
  const u32 used = (f.channels + 7) / 8;
  for (u32 half = 0; half < 2; ++half) {
    /* What comes next is read before it is needed. */
    Raw next = raw8(result + ((first + half * 64 + min(threadIdx.x / a.lanes, 63)) * f.padded + min(lane, f.octets - 1) * 8) * BYTES);
    if (white) {
      /* 64 pixels' numbers are whole blocks of 64, whatever the channels. */
      __syncthreads();
      draw_normals(key, time, a.noise_layer, (first / 64 + half) * f.channels * 16, f.channels * 16, drawn);
      __syncthreads();
    }
    for (u32 i = threadIdx.x / a.lanes; i < 64; i += groups) {
      const u32 local = half * 64 + i, pixel = first + local;
      const u32 at = ((pixel >> f.log_side) + f.border) * wide + (pixel & (f.side - 1)) + f.border;
      float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      const Raw raw = next;
      next = raw8(result + (min(pixel + groups, first + half * 64 + 63) * f.padded + min(lane, f.octets - 1) * 8) * BYTES);
      for (u32 o = 0; o < a.field_channels; o += 4) {
        const bool own = lane < 4 && o + lane < a.field_channels;
        const u64 to = (base + pixel) * a.field_channels + o + lane;
        const float before = own && !a.output ? a.state[to] : 0.0f;
        for (u32 octet = lane; octet < used; octet += a.lanes) {
          float v[8];
          u32 bits = dropped ? kept8((const u8*)kept, local * f.channels + octet * 8) : 255;
          finished8(f, octet == lane ? raw : raw8(result + (pixel * f.padded + octet * 8) * BYTES), past, pixel, at, octet, eight(scale, shift, octet), bits, grow, v);
          if (!behind) {
            float z[8];
            const float* from = by_channel ? drawn + octet * 8 : white ? drawn + i * f.channels + octet * 8 : a.correlated + (base + pixel) * f.channels + octet * 8;
            if (whole) {
              float4 p = ((const float4*)from)[0], q = ((const float4*)from)[1];
              z[0] = p.x, z[1] = p.y, z[2] = p.z, z[3] = p.w, z[4] = q.x, z[5] = q.y, z[6] = q.z, z[7] = q.w;
            } else {
#pragma unroll
              for (int c = 0; c < 8; ++c) z[c] = octet * 8 + c < f.channels ? from[c] : 0.0f;
            }
            disturb8(v, z, a.law, noise);
          }
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            if (o + k >= a.field_channels) break;
            const float4* w = (const float4*)(a.weight + (op * a.field_channels + o + k) * f.padded + octet * 8);
            float4 p = __ldg(w), q = __ldg(w + 1);
            sums[k] += p.x * v[0] + p.y * v[1] + p.z * v[2] + p.w * v[3] + q.x * v[4] + q.y * v[5] + q.z * v[6] + q.w * v[7];
          }
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          if (o + k >= a.field_channels) break;
          for (u32 step = a.lanes / 2; step > 0; step /= 2) sums[k] += __shfl_xor_sync(~0u, sums[k], step);
        }
        if (own) {
          float sum = lane == 0 ? sums[0] : lane == 1 ? sums[1] : lane == 2 ? sums[2] : sums[3];
          sum += a.bias[op * a.field_channels + o + lane];
          if (behind) sum = fmaf(noise.x, mixed(a, op, o + lane, a.correlated ? a.correlated + (base + pixel) * a.field_channels : drawn + local * a.field_channels), sum);
          moved(a, time, to, before, sum, update);
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) sums[k] = 0.0f;
      }
    }
  }
}

struct UnfoldArgs {
  const float* state; /* [B, H, W, field channels] */
  u8* out;            /* [B, H, W, PLANES, padded] */
  u32* clock;
  u32 images, side, field_channels, kernel, padded, split, magic, log_side;
};
static_assert(sizeof(UnfoldArgs) == UNFOLD_BYTES, "as in Rust");

/* Every pixel's neighbourhood as its channels, in parts that add up to the number: the first convolution is then a product.
   A block takes 64 pixels. Time goes on by one. */
extern "C" __global__ void __launch_bounds__(256) unfold(const __grid_constant__ UnfoldArgs a) {
  __shared__ uchar4 places[2 * MOST_CHANNELS]; /* column, row, channel, part */
  if (blockIdx.x == 0 && threadIdx.x == 0) *a.clock += 1;
  const u32 octets = a.padded / 8, taps = a.kernel * a.kernel * a.field_channels;
  for (u32 i = threadIdx.x; i < a.padded; i += 256) {
    u32 tap = i % taps, place = tap / a.field_channels;
    places[i] = make_uchar4(place % a.kernel, place / a.kernel, tap % a.field_channels, i / taps);
  }
  __syncthreads();
  const u32 per_image = a.side * a.side / 64, image = blockIdx.x / per_image, first = blockIdx.x % per_image * 64;
  const float* state = a.state + (u64)image * a.side * a.side * a.field_channels;
  for (u32 i = threadIdx.x; i < 64 * octets; i += 256) {
    u32 local = __umulhi(i, a.magic), octet = i - local * octets, pixel = first + local;
    u32 x = (pixel & (a.side - 1)) + a.side - a.kernel / 2, y = (pixel >> a.log_side) + a.side - a.kernel / 2;
    float v[8];
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      uchar4 p = places[octet * 8 + c];
      u32 sx = (x + p.x) & (a.side - 1), sy = (y + p.y) & (a.side - 1);
      float value = p.w < a.split ? state[((sy << a.log_side) + sx) * a.field_channels + p.z] : 0.0f;
      v[c] = p.w == 0 ? value : value - as_stored(value);
    }
    u64 at = (u64)image * a.side * a.side + pixel;
    write8(a.out + (at * PLANES * a.padded + octet * 8) * BYTES, a.padded * BYTES, pack8(v));
  }
}

struct NormaliseArgs {
  float* state;
  float* trace;
  const u32* clock;
  u64 state_len;
  u32 side, field_channels;
  float clamp;
  u32 trace_slots;
};
static_assert(sizeof(NormaliseArgs) == NORMALISE_BYTES, "as in Rust");

/* One channel of one image per block: mean 0, standard deviation 1, then the limit. */
extern "C" __global__ void __launch_bounds__(256) normalise(const __grid_constant__ NormaliseArgs a) {
  __shared__ double sums[256];
  const u32 count = a.side * a.side, c = blockIdx.x % a.field_channels;
  float* field = a.state + (u64)(blockIdx.x / a.field_channels) * count * a.field_channels + c;
  double mean = 0.0, share = 0.0;
  for (int round = 0; round < 2; ++round) {
    double sum = 0.0;
    for (u32 i = threadIdx.x; i < count; i += 256) {
      double x = (double)field[(u64)i * a.field_channels] - mean;
      sum += round == 0 ? x : x * x;
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (u32 step = 128; step > 0; step /= 2) {
      if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
      __syncthreads();
    }
    if (round == 0) mean = sums[0] / count;
    else share = sums[0] / count;
    __syncthreads();
  }
  double scale = sqrt(share) > 1e-12 ? 1.0 / sqrt(share) : share == share ? 0.0 : share;
  float* kept = a.trace ? a.trace + *a.clock % a.trace_slots * a.state_len + (field - a.state) : nullptr;
  for (u32 i = threadIdx.x; i < count; i += 256) {
    float x = (float)(((double)field[(u64)i * a.field_channels] - mean) * scale);
    if (a.clamp > 0.0f && x == x) x = fminf(fmaxf(x, -a.clamp), a.clamp);
    field[(u64)i * a.field_channels] = x;
    if (kept) kept[(u64)i * a.field_channels] = x;
  }
}

struct CorrelateArgs {
  const float* modes; /* [modes, n] */
  const float* from;  /* none: normals are drawn */
  float* to;
  const u32* keys;
  const u32* clock;
  u32 images, side, channels, rows, columns, layer;
};
static_assert(sizeof(CorrelateArgs) == CORRELATE_BYTES, "as in Rust");

/* Normals of all modes, [B, rows, columns, channels]. */
extern "C" __global__ void __launch_bounds__(256) draw_modes(const __grid_constant__ CorrelateArgs a) {
  const u32 count = a.rows * a.columns * a.channels, counters = (count + 63) / 64 * 16;
  for (u64 n = (u64)blockIdx.x * 256 + threadIdx.x; n < (u64)a.images * counters; n += (u64)gridDim.x * 256) {
    u32 image = n / counters, i = n % counters;
    const u32* key = a.keys + 4 * image;
    uint4 words = philox(make_uint4(i, key[2], *a.clock, a.layer), key[0], key[1]);
    float2 p = normals(words.x, words.y), q = normals(words.z, words.w);
    const float four[4] = {p.x, p.y, q.x, q.y};
    for (u32 w = 0; w < 4; ++w) {
      u32 at = i / 16 * 64 + w * 16 + i % 16;
      if (at < count) a.to[(u64)image * count + at] = four[w];
    }
  }
}

/* Along one axis: to[outer, place, inner] = sum over modes of modes[mode, place] from[outer, mode, inner], where `rows` is outer's
   length, `columns` the modes' count and `channels` inner's. Four places share what is read. */
extern "C" __global__ void __launch_bounds__(256) correlate(const __grid_constant__ CorrelateArgs a) {
  const u64 outer = (u64)a.images * a.rows, count = outer * (a.side / 4) * a.channels;
  for (u64 n = (u64)blockIdx.x * 256 + threadIdx.x; n < count; n += (u64)gridDim.x * 256) {
    u32 inner = n % a.channels;
    u64 rest = n / a.channels;
    u32 place = rest % (a.side / 4) * 4;
    const float* from = a.from + rest / (a.side / 4) * a.columns * a.channels + inner;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
    for (u32 mode = 0; mode < a.columns; ++mode) {
      float v = from[(u64)mode * a.channels];
      float4 m = __ldg((const float4*)(a.modes + mode * a.side + place));
      sum.x = fmaf(v, m.x, sum.x), sum.y = fmaf(v, m.y, sum.y), sum.z = fmaf(v, m.z, sum.z), sum.w = fmaf(v, m.w, sum.w);
    }
    float* to = a.to + (rest / (a.side / 4) * a.side + place) * a.channels + inner;
    to[0] = sum.x, to[a.channels] = sum.y, to[2 * a.channels] = sum.z, to[3 * a.channels] = sum.w;
  }
}
