/* What lies between convolutions of 64, 128 or 256 channels: `finish` and `finish_last` for numbers of two bytes.

   Numbers are rows of 64. A warp goes through rows next to each other on its own: the copy engine brings 32 of them to shared memory, or
   16 and what comes past them, and takes them from there, swizzled, while the warp is at the next. Eight lanes take two rows: of each
   sixteen numbers a lane has the two whose random bits are those of its own two Philox counters, so that lanes exchange nothing; the
   four pairs of rows of a warp are in different banks. */
#if KIND < 2
#define WIDE_WARPS 4
/* Of a warp: two buffers, their barriers, and normals of noise. */
#define WIDE_BYTES 4096
#define WIDE_NORMALS 128
/* Of a block: scales and shifts of an image's channels. */

/* Where norms come from: sums of the kernel before this one, whole numbers (`add_whole`), of which scales and shifts are made here; or
   scales and shifts in FinishArgs, if there are none. */
struct Norms {
  const long long* sums; /* [B, 2, channels] */
  long long* clear;      /* the same of another layer, which nobody reads any more */
  const float* affine;   /* [operators, 2, channels] */
  double share;          /* of a whole number in a mean */
  u32 cleared, unused;   /* numbers of the other layer */
};
FN float2 norm_of(long long sum, long long square, float gain, float offset, double share) {
  const double mean = (double)sum * share, variance = fmax((double)square * share - mean * mean, 0.0);
  float scale = gain * (1.0f / sqrtf((float)variance + 1e-5f));
  if (square >> 61) scale = __int_as_float(0x7fffffff);
  return make_float2(scale, offset - (float)mean * scale);
}
/* Two channels' scales and shifts: x and z, y and w. */
FN float4 norms_of(const Norms& n, const FinishArgs& f, u32 image, u32 op, u32 channel, float share) {
  const u32 at = image * 2 * f.channels + channel;
  float2 x, y;
  if (n.sums) {
    const longlong2 sums = __ldcg((const longlong2*)(n.sums + at)), squares = __ldcg((const longlong2*)(n.sums + at + f.channels));
    const float2 *weight = (const float2*)(n.affine + op * 2 * f.channels + channel), gains = weight[0], offsets = weight[f.channels / 2];
    x = norm_of(sums.x, squares.x, gains.x, offsets.x, n.share), y = norm_of(sums.y, squares.y, gains.y, offsets.y, n.share);
  } else {
    const float2 scales = *(const float2*)(f.norm + at), shifts = *(const float2*)(f.norm + at + f.channels);
    x = make_float2(scales.x, shifts.x), y = make_float2(scales.y, shifts.y);
  }
  return make_float4(x.x * share, x.y * share, y.x * share, y.y * share);
}
/* For all threads of all blocks. */
FN void clear_sums(const Norms& n) {
#pragma unroll 1
  for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n.cleared; i += gridDim.x * blockDim.x) n.clear[i] = 0;
}

struct WideArgs {
  Map y, past, out; /* {64, rows}, as many rows at once as a warp has */
  FinishArgs f;
  Norms n;
};
static_assert(sizeof(WideArgs) == WIDE_BYTES_OF_ARGS, "as in Rust");
struct WideLastArgs {
  Map y, past;
  LastArgs l;
  Norms n;
};
static_assert(sizeof(WideLastArgs) == WIDE_LAST_BYTES, "as in Rust");

/* Computed once: the compiler would do it again each turn to save registers. */
FN void hold(u32& x) { asm volatile("" : "+r"(x)); }

/* Philox of counters (n, row, time, layer): what does not depend on n is reckoned once. */
struct Rounds {
  u32 third, first, after, last, keys[16];
};
struct Key {
  u32 k0, k1, row, time;
};
FN Key key_of(const FinishArgs& f, u32 image) {
  const u32* key = f.keys + 4 * image;
  Key k = {key[0], key[1], key[2], *f.clock};
  hold(k.k0), hold(k.k1), hold(k.row), hold(k.time);
  return k;
}
FN Rounds rounds_by(const FinishArgs& f, const Key& key) {
  u32 k0 = key.k0, k1 = key.k1;
  Rounds r;
  const u64 b = (u64)key.time * 0xCD9E8D57u, a = (u64)((u32)(b >> 32) ^ key.row ^ k0) * 0xD2511F53u;
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
FN Rounds rounds_of(const FinishArgs& f, u32 image) { return rounds_by(f, key_of(f, image)); }
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

/* What dropout leaves grows by `grow`. In bf16 GELU takes numbers that norms made `share` times as large, half of `grow`: x Φ(x) grown is then
   (1 + tanh) times such a number, tanh of a cubic of it with these coefficients; within 3e-4, a seventh of the rounding near 1. */
struct Growth {
  float grow, share, linear, cubic;
};
template <bool GELU> FN Growth growth_of(u32 dropped) {
  Growth g;
  g.grow = 65536.0f / (65536 - dropped);
  if (GELU && KIND == 0) {
    const float back = 2.0f * (65536 - dropped) / 65536;
    g.share = 0.5f * g.grow, g.linear = 0.800157f * back, g.cubic = 0.0347009f * back * back * back;
  } else {
    g.share = 1.0f, g.linear = g.cubic = 0.0f;
  }
  return g;
}
FN float gelu_grown(float x, const Growth& g) {
#if KIND == 0
  float inner = x * fmaf(x * x, g.cubic, g.linear), outer;
  asm("tanh.approx.f32 %0, %1;" : "=f"(outer) : "f"(inner));
  return fmaf(x, outer, x);
#else
  return gelu(x) * g.grow;
#endif
}

/* Rows of a warp's tile: they lie in one row of an image. */
#define ROWS_OF(PAST) (PAST ? 16 : 32)

/* Where a tile lies: its image, its first row of 64 numbers there, and that pixel. */
struct Tile {
  u32 image, first, x, y;
};
template <u32 ROWS> FN Tile tile_of(const FinishArgs& f, u32 number) {
  const u32 log_chunks = f.log_channels - 6, log_rows = 2 * f.log_side + log_chunks;
  Tile t;
  t.image = number * ROWS >> log_rows;
  t.first = number * ROWS - (t.image << log_rows);
  const u32 pixel = t.first >> log_chunks;
  t.x = pixel & (f.side - 1), t.y = pixel >> f.log_side;
  return t;
}
/* Its first row in a tensor with a border. */
FN u32 row_at(const FinishArgs& f, const Tile& t) {
  const u32 wide = f.side + 2 * f.border;
  return ((t.image * wide + t.y + f.border) * wide + t.x + f.border) << (f.log_channels - 6);
}

/* A block has a part of an image, or several whole images one after the other: all its warps need the same norms. */
FN u32 first_image(const FinishArgs& f) { return f.images < gridDim.x ? blockIdx.x * f.images / gridDim.x : blockIdx.x; }
FN u32 next_image(const FinishArgs& f, u32 image) { return f.images < gridDim.x ? f.images : image + gridDim.x; }

/* A warp's tiles of an image, from `first` to `end`, and its buffers. */
struct Ring {
  u32 first, end, buffers, come;
};
template <u32 ROWS> FN Ring ring_of(const FinishArgs& f, u8* room, u32 image) {
  const u32 warp = __shfl_sync(~0u, threadIdx.x / 32, 0), blocks = gridDim.x, images = f.images;
  u32 first = 0, end = 1;
  if (images < blocks) first = (image * blocks + images - 1) / images, end = ((image + 1) * blocks + images - 1) / images;
  const u32 warps = (end - first) * WIDE_WARPS, number = (images < blocks ? blockIdx.x - first : 0) * WIDE_WARPS + warp;
  const u32 count = (f.side * f.side << (f.log_channels - 6)) / ROWS, each = count / warps, more = count - each * warps;
  Ring r;
  r.first = image * count + number * each + min(number, more), r.end = r.first + each + (number < more);
  r.buffers = shared_address(room) + warp * 2 * WIDE_BYTES;
  r.come = shared_address(room) + WIDE_WARPS * 2 * WIDE_BYTES + warp * 16;
  return r;
}
FN u32 buffer_at(const Ring& r, u32 number) { return r.buffers + ((number - r.first) & 1) * WIDE_BYTES; }

/* Results, and what comes past them, to a buffer. */
template <bool PAST> FN void bring_rows(const FinishArgs& f, const Ring& r, u32 number, const Map* y, const Map* past) {
  constexpr u32 ROWS = ROWS_OF(PAST);
  const u32 which = (number - r.first) & 1, buffer = r.buffers + which * WIDE_BYTES, come = r.come + 8 * which;
  barrier_expect(come, PAST ? 2 * ROWS * 128 : ROWS * 128);
  copy5(buffer, y, come, 0, number * ROWS, 0, 0, 0);
  if (PAST) copy5(buffer + ROWS * 128, past, come, 0, f.past_is_activation ? row_at(f, tile_of<ROWS>(f, number)) : number * ROWS, 0, 0, 0);
}
template <bool PAST> FN void bring_first(const FinishArgs& f, const Ring& r, const Map* y, const Map* past) {
#pragma unroll 1
  for (u32 number = r.first; number < min(r.end, r.first + 2); ++number) bring_rows<PAST>(f, r, number, y, past);
}
FN void rows_come(const Ring& r, u32 number) {
  const u32 turn = number - r.first;
  barrier_wait(r.come + 8 * (turn & 1), turn >> 1 & 1);
}

/* Of a lane's sixteen numbers: scales and shifts. */
struct Sixteen {
  Eight left, right;
};
FN void eight_of(const float2* norms, Eight& e) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float4 x = *(const float4*)(norms + 16 * j);
    e.scale[2 * j] = x.x, e.scale[2 * j + 1] = x.z, e.shift[2 * j] = x.y, e.shift[2 * j + 1] = x.w;
  }
}
/* A lane's two rows: of the channels' parts of 64, which are the same in every turn. */
FN u32 left_chunk(const FinishArgs& f, u32 lane) { return lane / 8 * 2 & (f.channels / 64 - 1); }
FN u32 right_chunk(const FinishArgs& f, u32 lane) { return (lane / 8 * 2 + 1) & (f.channels / 64 - 1); }
/* From ONE times 64 channels both rows have the same. */
template <bool ONE> FN Sixteen sixteen_of(const FinishArgs& f, const float2* norms, u32 lane) {
  norms += lane % 8 * 2;
  Sixteen s;
  eight_of(norms + (ONE ? 0 : left_chunk(f, lane) * 64), s.left);
  if (ONE) s.right = s.left;
  else eight_of(norms + right_chunk(f, lane) * 64, s.right);
  return s;
}
/* The beginning of an image, for all of a block: its norms are there behind it, and its first tiles come. Where norms are made here of
   sums, results are of the kernel before this one, which must have ended; else they are of an earlier one, and come at once. */
template <bool PAST, bool LAST> FN void begin_image(const FinishArgs& f, const Norms& n, const Ring& r, u32 image, u32 op, float share, float2* norms, const Map* y, const Map* past) {
  const bool first = image == first_image(f), leads = threadIdx.x % 32 == 0;
  if (!first) __syncthreads();
  if (leads) {
    if (!first) asm volatile("mbarrier.inval.shared::cta.b64 [%0];\nmbarrier.inval.shared::cta.b64 [%1];" ::"r"(r.come), "r"(r.come + 8) : "memory");
    barrier_init(r.come, 1), barrier_init(r.come + 8, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  if (leads && !n.sums) bring_first<PAST>(f, r, y, past);
  /* A second time neither waits. From many channels norms are made twice, first of whatever is there: their instructions come meanwhile. */
#pragma unroll 1
  for (u32 turn = n.sums && first && f.channels > 64 ? 0 : 1; turn < 2; ++turn) {
    if (turn == 1) {
      wait_before();
      /* Nothing begins early behind the last kernel of a step. */
      if (!LAST) let_next();
      if (leads && n.sums) bring_first<PAST>(f, r, y, past);
    }
    if (threadIdx.x < f.channels / 2) ((float4*)norms)[threadIdx.x] = norms_of(n, f, image, op, threadIdx.x * 2, share);
  }
  if (first) clear_sums(n);
  __syncthreads();
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
template <bool GELU, bool PAST> FN void activated(const FinishArgs& f, const u32* at, const Eight& e, const Growth& g, float* v) {
  eight_at<0>(at, v);
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = fmaf(v[i], e.scale[i], e.shift[i]);
  if (PAST) {
    float more[8];
    eight_at<ROWS_OF(PAST) * 128>(at, more);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = KIND == 0 && GELU ? fmaf(more[i], g.share, v[i]) : v[i] + more[i];
  }
  if (!GELU) activate8(v, f.act);
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = GELU ? gelu_grown(v[i], g) : v[i] * g.grow;
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

/* A lane's numbers in the turn of a warp's eight rows: where they lie, and what becomes of them; `row` is the first in the image. */
struct Turn {
  u32 left[4], right[4];
};
FN Turn turn_of(u32 rows, u32 lane) {
  const u32 quad = lane / 8, two = lane % 8, at = rows + 2 * quad * 128 + ((two / 4 ^ 2 * quad) << 4) + two % 4 * 4;
  Turn t;
#pragma unroll
  for (int j = 0; j < 4; ++j) t.left[j] = at ^ (32 * j), t.right[j] = (at ^ (32 * j + 16)) + 128;
  return t;
}
template <bool GELU, bool PAST>
FN void finished(const FinishArgs& f, const Turn& t, u32 row, u32 lane, const Sixteen& s, const Rounds& rounds, u32 limit, const Growth& g, float* v, float* w) {
  const u32 counter = (row / 2 + lane / 8) * 16 + lane % 8 * 2;
  const uint4 c = drawn_by(rounds, rounds.third, counter), d = drawn_by(rounds, rounds.third, counter + 1);
  activated<GELU, PAST>(f, t.left, s.left, g, v), activated<GELU, PAST>(f, t.right, s.right, g, w);
  drop(v, c.x, d.x, c.y, d.y, limit), drop(w, c.z, d.z, c.w, d.w, limit);
}

/* Pixels at a side of the image, once more at the other side; those at top or bottom leave twice as well. */
FN void repeat_sides(const FinishArgs& f, const Tile& t, u32 pixels, u32 buffer, u32 lane) {
  if (t.x != 0 && t.x + pixels != f.side) return;
  const u32 wide = f.side + 2 * f.border, octets = f.channels / 8;
  u8* out = f.out + (u64)t.image * wide * wide * f.channels * 2;
  for (u32 i = lane; i < 2 * f.border * octets; i += 32) {
    const u32 which = i >> (f.log_channels - 3), octet = i & (octets - 1);
    const bool left = which < f.border;
    if (left ? t.x != 0 : t.x + pixels != f.side) continue;
    const u32 x = left ? which : f.side - 2 * f.border + which, row = ((x - t.x) << (f.log_channels - 6)) + octet / 8;
    uint4 words;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w) : "r"(buffer + row * 128 + ((octet % 8 ^ row % 8) << 4)) : "memory");
    const u32 at = (t.y + f.border) * wide + (left ? x + f.side : x - f.side) + f.border;
    ((uint4*)out)[at * octets + octet] = words;
    const int down = t.y < f.border ? (int)f.side : t.y >= f.side - f.border ? -(int)f.side : 0;
    if (down) ((uint4*)out)[(at + down * wide) * octets + octet] = words;
  }
}
FN void leave(const Map* out, u32 from, u32 row) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %2, %2, %2}], [%1];" ::"l"(out), "r"(from), "r"(0), "r"(row) : "memory");
}

template <bool GELU, bool PAST, bool ONE> FN void finish_rows(const WideArgs& a) {
  extern __shared__ u8 shared[];
  constexpr u32 ROWS = ROWS_OF(PAST);
  const FinishArgs& f = a.f;
  const u32 lane = threadIdx.x % 32;
  u8* room = shared + ((1024 - (shared_address(shared) & 1023)) & 1023);
  float2* norms = (float2*)(room + WIDE_WARPS * (2 * WIDE_BYTES + 16));
#pragma unroll 1
  for (u32 image = first_image(f); image < f.images; image = next_image(f, image)) {
    const Ring r = ring_of<ROWS>(f, room, image);
    const u32 op = image / f.rows_per_op, dropped = f.dropped[op], limit = dropped << 16;
    const Key key = key_of(f, image);
    begin_image<PAST, false>(f, a.n, r, image, op, growth_of<GELU>(dropped).share, norms, &a.y, &a.past);
    const Growth g = growth_of<GELU>(dropped);
    const Rounds rounds = rounds_by(f, key);
    const Sixteen s = sixteen_of<ONE>(f, norms, lane);
#pragma unroll 1
    for (u32 number = r.first; number < r.end; ++number) {
      const Tile t = tile_of<ROWS>(f, number);
      const u32 buffer = buffer_at(r, number);
      rows_come(r, number);
#pragma unroll 1
      for (u32 row = 0; row < ROWS; row += 8) {
        float v[8], w[8];
        const Turn turn = turn_of(buffer + row * 128, lane);
        finished<GELU, PAST>(f, turn, t.first + row, lane, s, rounds, limit, g, v, w);
        put_eight(turn.left, v), put_eight(turn.right, w);
        /* The next but one may come where the one before has left by now. */
        if (row == 0 && lane == 0 && number > r.first && number + 1 < r.end) {
          asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
          bring_rows<PAST>(f, r, number + 1, &a.y, &a.past);
        }
      }
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncwarp();
      if (lane == 0) {
        const u32 to = row_at(f, t), height = f.side * (f.side + 2 * f.border) << (f.log_channels - 6);
        leave(&a.out, buffer, to);
        if (t.y < f.border) leave(&a.out, buffer, to + height);
        if (t.y >= f.side - f.border) leave(&a.out, buffer, to - height);
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      }
      repeat_sides(f, t, ROWS >> (f.log_channels - 6), buffer, lane);
      __syncwarp();
    }
    if (lane == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
}

template <bool ONE> FN void finish_any(const WideArgs& a) {
  if (a.f.act != 4) a.f.past ? finish_rows<false, true, ONE>(a) : finish_rows<false, false, ONE>(a);
  else if (a.f.past) finish_rows<true, true, ONE>(a);
  else finish_rows<true, false, ONE>(a);
}
extern "C" __global__ void __launch_bounds__(32 * WIDE_WARPS, 6) finish_64(const __grid_constant__ WideArgs a) { finish_any<true>(a); }
extern "C" __global__ void __launch_bounds__(32 * WIDE_WARPS, 6) finish_wide(const __grid_constant__ WideArgs a) { finish_any<false>(a); }

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

/* Normals of the field's numbers in two blocks of 64 from number `block` on, for Gaussian noise behind the way back. */
FN void draw_behind(const Rounds& rounds, u32 third, u32 block, u32 lane, float* normals_of) {
  const uint4 c = drawn_by(rounds, third, block * 16 + lane);
  const float2 p = normals(c.x, c.y), q = normals(c.z, c.w);
  float* at = normals_of + lane / 16 * 64 + lane % 16;
  at[0] = p.x, at[16] = p.y, at[32] = q.x, at[48] = q.y;
}

/* d += a b, of 16 rows by 8 in tf32: a lane has numbers t and t + 4 of rows g and g + 8, g = lane / 4 and t = lane % 4. */
FN void multiply_8(float (&d)[4], float a0, float a1, float a2, float a3, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(__float_as_uint(a0)), "r"(__float_as_uint(a1)), "r"(__float_as_uint(a2)), "r"(__float_as_uint(a3)), "r"(b0), "r"(b1));
}

/* The way back from 64 channels on tensor cores. Two groups of four lanes share two pixels, each with numbers of its own: columns of
   products are the field's channels with weights of the first group's numbers, then of the second's. */
struct Back {
  u32 weights[8];
};
FN Back back_of(const LastArgs& a, u32 op, u32 lane) {
  const u32 k = lane / 4 % 4;
  const float* from = a.weight + (op * a.field_channels + k) * 64 + lane / 16 * 8 + lane % 4 * 2;
  Back b;
#pragma unroll
  for (int i = 0; i < 8; ++i) b.weights[i] = k < a.field_channels ? __float_as_uint(round_tf32(from[i / 2 * 16 + i % 2])) : 0;
  return b;
}
/* Of eight lanes the first has channels 0 and 1 of the first pixel, then of the second; the next lane channels 2 and 3. */
FN void back(const Back& b, const float* v, const float* w, float (&d)[4]) {
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
#if KIND == 0
    /* What is cut off is an eighth of bf16's rounding. */
    multiply_8(d, v[i], w[i], v[i + 1], w[i + 1], b.weights[i], b.weights[i + 1]);
#else
    multiply_8(d, round_tf32(v[i]), round_tf32(w[i]), round_tf32(v[i + 1]), round_tf32(w[i + 1]), b.weights[i], b.weights[i + 1]);
#endif
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) d[i] += __shfl_down_sync(~0u, d[i], 6);
}

/* `finish_last` from 64 channels to at most four of the field: with white noise by number, or BEHIND the way back. More: `last.cu`. */
template <bool BEHIND, bool GELU, bool PAST> FN void last(const WideLastArgs& args) {
  extern __shared__ u8 shared[];
  constexpr u32 ROWS = ROWS_OF(PAST);
  const LastArgs& a = args.l;
  const FinishArgs& f = a.f;
  const u32 lane = threadIdx.x % 32, quad = lane / 8, two = lane % 8;
  u8* room = shared + ((1024 - (shared_address(shared) & 1023)) & 1023);
  float2* norms = (float2*)(room + WIDE_WARPS * (2 * WIDE_BYTES + 16));
  float* noise = (float*)((u8*)norms + WIDE_NORMS) + threadIdx.x / 32 * WIDE_NORMALS;
  const u32 numbers = ROWS * a.field_channels;
#pragma unroll 1
  for (u32 image = first_image(f); image < f.images; image = next_image(f, image)) {
    const Ring r = ring_of<ROWS>(f, room, image);
    const u32 op = image / f.rows_per_op, dropped = f.dropped[op], limit = dropped << 16;
    const Key key = key_of(f, image);
    const u32 time = key.time;
    begin_image<PAST, true>(f, args.n, r, image, op, growth_of<GELU>(dropped).share, norms, &args.y, &args.past);
    const Growth g = growth_of<GELU>(dropped);
    const Rounds rounds = rounds_by(f, key);
    const u32 third = rounds.third ^ f.layer ^ a.noise_layer;
    const float size = a.scales[op * (a.steps + 1) + min(time, a.steps)].x;
    const float2 update = a.update[op];
    const Back to_field = back_of(a, op, lane);
    const float *bias = a.bias + op * a.field_channels, *factor = a.factor + op * a.field_channels * a.field_channels;
    u32 drawn = ~0u;
    const Sixteen s = sixteen_of<true>(f, norms, lane);
#pragma unroll 1
    for (u32 number = r.first; number < r.end; ++number) {
      const Tile t = tile_of<ROWS>(f, number);
      const u32 from = t.first * a.field_channels;
      const u64 state = (u64)t.image * f.side * f.side * a.field_channels + from;
      if (BEHIND && !a.correlated && (drawn == ~0u || from + numbers > drawn * 64 + WIDE_NORMALS)) {
        drawn = from / 64;
        __syncwarp();
        draw_behind(rounds, third, drawn, lane, noise);
        __syncwarp();
      }
      const float* normals_of = a.correlated ? a.correlated + state : noise + (from - drawn * 64);
      const u32 buffer = buffer_at(r, number);
      const u64 mine = state + lane * a.field_channels;
      float before[4] = {};
      if (lane < ROWS && !a.output) {
#pragma unroll
        for (u32 k = 0; k < 4; ++k)
          if (k < a.field_channels) before[k] = a.state[mine + k];
      }
      rows_come(r, number);
#pragma unroll 1
      for (u32 row = 0; row < ROWS; row += 8) {
        float v[8], w[8], d[4] = {};
        finished<GELU, PAST>(f, turn_of(buffer + row * 128, lane), t.first + row, lane, s, rounds, limit, g, v, w);
        if (!BEHIND) disturb(a, rounds, third, t.first + row + 2 * quad, two, size, v), disturb(a, rounds, third, t.first + row + 2 * quad + 1, two, size, w);
        back(to_field, v, w, d);
        /* To where numbers were that all lanes have read: two channels of each of two pixels. */
        const u32 to = buffer + (row + 2 * quad) * 16 + two * 8;
        if (two < 2) asm volatile("st.shared.v2.f32 [%0], {%1, %2};\nst.shared.v2.f32 [%0 + 16], {%3, %4};" ::"r"(to), "f"(d[0]), "f"(d[1]), "f"(d[2]), "f"(d[3]) : "memory");
      }
      __syncwarp();
      /* A pixel a lane. */
      if (lane < ROWS) {
        float sums[4], z[4];
        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3]) : "r"(buffer + lane * 16) : "memory");
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
          if (k >= a.field_channels) continue;
          float sum = sums[k] + __ldg(bias + k);
          if (BEHIND) {
            /* What L makes of the pixel's normals, as `mixed` does. */
            z[k] = normals_of[lane * a.field_channels + k];
            float mixed = 0.0f;
#pragma unroll
            for (u32 j = 0; j <= k; ++j) mixed = fmaf(__ldg(factor + k * a.field_channels + j), z[j], mixed);
            sum = fmaf(size, mixed, sum);
          }
          moved(a, time, mine + k, before[k], sum, update);
        }
      }
      /* The next but one may come. */
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncwarp();
      if (lane == 0 && number + 2 < r.end) bring_rows<PAST>(f, r, number + 2, &args.y, &args.past);
    }
  }
}

template <bool BEHIND> FN void last_any(const WideLastArgs& a) {
  if (a.l.f.act != 4) a.l.f.past ? last<BEHIND, false, true>(a) : last<BEHIND, false, false>(a);
  else if (a.l.f.past) last<BEHIND, true, true>(a);
  else last<BEHIND, true, false>(a);
}
extern "C" __global__ void __launch_bounds__(32 * WIDE_WARPS, 4) white_64(const __grid_constant__ WideLastArgs a) { last_any<false>(a); }
extern "C" __global__ void __launch_bounds__(32 * WIDE_WARPS, 5) behind_64(const __grid_constant__ WideLastArgs a) { last_any<true>(a); }
#endif
