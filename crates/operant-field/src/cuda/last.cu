/* The last layer of 128 or 256 channels: `last` of `wide.cu` for more than one part of 64 channels. The way back is on tensor cores, with
   weights and numbers as other convolutions have them; noise and step come behind 32 pixels at a time, one pixel a lane. */
#if KIND < 2
/* Of a warp: normals of at most three blocks of 64, and sums of 32 pixels. */
#define LAST_NORMALS 192
#define LAST_SUMS 128

/* d += a b, of 16 rows by 16 numbers and 8 columns: a lane has numbers 2t, 2t + 1, 2t + 8 and 2t + 9 of rows g and g + 8. */
FN void multiply_16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
#if KIND == 1
#define NAME "f16"
#else
#define NAME "bf16"
#endif
  asm("mma.sync.aligned.m16n8k16.row.col.f32." NAME "." NAME ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#undef NAME
}

/* Columns of products are the field's channels with weights of the first four of eight lanes' numbers, then of the others': of each part of
   64 channels. */
struct BackMany {
  u32 weights[4][4];
};
FN BackMany back_many_of(const LastArgs& a, u32 op, u32 lane) {
  const u32 parts = a.f.channels / 64;
  BackMany b;
#pragma unroll
  for (u32 part = 0; part < 4; ++part) {
    const uint4 words = a.by_lane[(op * parts + min(part, parts - 1)) * 32 + lane];
    b.weights[part][0] = words.x, b.weights[part][1] = words.y, b.weights[part][2] = words.z, b.weights[part][3] = words.w;
#pragma unroll
    for (u32 j = 0; j < 4; ++j) hold(b.weights[part][j]);
  }
  return b;
}
/* Two channels of a pixel in the first two of its lanes. */
FN float2 back_many(const BackMany& b, const float* v, const float* w, bool four, u32 lane) {
  u32 left[4], right[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) left[j] = pack(v[2 * j], v[2 * j + 1]), right[j] = pack(w[2 * j], w[2 * j + 1]);
  float d[4][4] = {};
#pragma unroll
  for (int part = 0; part < 4; ++part) {
    if (part == 2 && !four) break;
#pragma unroll
    for (int j = 0; j < 4; j += 2) multiply_16(d[part], left[j], right[j], left[j + 1], right[j + 1], b.weights[part][j], b.weights[part][j + 1]);
  }
  float2 s = make_float2(d[0][0] + d[1][2], d[0][1] + d[1][3]);
  if (four && lane & 8) s = make_float2(d[2][0] + d[3][2], d[2][1] + d[3][3]);
  s.x += __shfl_down_sync(~0u, s.x, 6), s.y += __shfl_down_sync(~0u, s.y, 6);
  if (four) s.x += __shfl_xor_sync(~0u, s.x, 8), s.y += __shfl_xor_sync(~0u, s.y, 8);
  return s;
}

template <bool BEHIND, bool GELU, bool PAST> FN void last_many(const WideLastArgs& args) {
  extern __shared__ u8 shared[];
  constexpr u32 ROWS = ROWS_OF(PAST);
  const LastArgs& a = args.l;
  const FinishArgs& f = a.f;
  const u32 lane = threadIdx.x % 32, quad = lane / 8, two = lane % 8;
  u8* room = shared + ((1024 - (shared_address(shared) & 1023)) & 1023);
  float2* norms = (float2*)(room + WIDE_WARPS * (2 * WIDE_BYTES + 16));
  float* noise = (float*)((u8*)norms + WIDE_NORMS) + threadIdx.x / 32 * (LAST_NORMALS + LAST_SUMS);
  float4* sums = (float4*)(noise + LAST_NORMALS);
  const u32 log_parts = f.log_channels - 6, pixels_at_once = ROWS >> log_parts, most = 32 / pixels_at_once;
  const bool four = log_parts == 2;
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
    const BackMany to_field = back_many_of(a, op, lane);
    const Sixteen s = sixteen_of<false>(f, norms, lane);
#pragma unroll 1
    for (u32 number = r.first; number < r.end;) {
      const Tile first = tile_of<ROWS>(f, number);
      const u32 until = min(r.end, number + most), pixels = (until - number) * pixels_at_once;
      const u32 from = (first.first >> log_parts) * a.field_channels, block = from / 64;
      const u64 state = (u64)image * f.side * f.side * a.field_channels + from + lane * a.field_channels;
      float before[4] = {};
      if (lane < pixels && !a.output) {
#pragma unroll
        for (u32 k = 0; k < 4; ++k)
          if (k < a.field_channels) before[k] = a.state[state + k];
      }
      if (BEHIND && !a.correlated) {
        __syncwarp();
        for (u32 i = lane; block * 64 + i / 16 * 64 < from + pixels * a.field_channels; i += 32) {
          const uint4 c = drawn_by(rounds, third, block * 16 + i);
          const float2 p = normals(c.x, c.y), q = normals(c.z, c.w);
          float* at = noise + i / 16 * 64 + i % 16;
          at[0] = p.x, at[16] = p.y, at[32] = q.x, at[48] = q.y;
        }
      }
      u32 pixel = two == 0 || two == 1 ? quad * 2 >> log_parts : 32;
      if (four && quad % 2) pixel = 32;
#pragma unroll 1
      for (u32 row_of = first.first; number < until; ++number) {
        const u32 buffer = buffer_at(r, number);
        rows_come(r, number);
#pragma unroll 1
        for (u32 row = 0; row < ROWS; row += 8, row_of += 8, pixel += 8 >> log_parts) {
          float v[8], w[8];
          finished<GELU, PAST>(f, turn_of(buffer + row * 128, lane), row_of, lane, s, rounds, limit, g, v, w);
          if (!BEHIND) disturb(a, rounds, third, row_of + 2 * quad, two, size, v), disturb(a, rounds, third, row_of + 2 * quad + 1, two, size, w);
          const float2 sum = back_many(to_field, v, w, four, lane);
          if (pixel < 32) ((float2*)sums)[pixel * 2 + two] = sum;
        }
        __syncwarp();
        if (lane == 0 && number + 2 < r.end) bring_rows<PAST>(f, r, number + 2, &args.y, &args.past);
      }
      __syncwarp();
      if (lane < pixels) {
        const float4 found = sums[lane];
        const float of[4] = {found.x, found.y, found.z, found.w};
        const float* normals_of = a.correlated ? a.correlated + state : noise + (from - block * 64) + lane * a.field_channels;
        const float *bias = a.bias + op * a.field_channels, *factor = a.factor + op * a.field_channels * a.field_channels;
        float z[4];
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
          if (k >= a.field_channels) continue;
          float sum = of[k] + __ldg(bias + k);
          if (BEHIND) {
            /* What L makes of the pixel's normals, as `mixed` does. */
            z[k] = normals_of[k];
            float mixed = 0.0f;
#pragma unroll
            for (u32 j = 0; j <= k; ++j) mixed = fmaf(__ldg(factor + k * a.field_channels + j), z[j], mixed);
            sum = fmaf(size, mixed, sum);
          }
          moved(a, time, state + k, before[k], sum, update);
        }
      }
      __syncwarp();
    }
  }
}

template <bool BEHIND> FN void last_many_any(const WideLastArgs& a) {
  if (a.l.f.act != 4) a.l.f.past ? last_many<BEHIND, false, true>(a) : last_many<BEHIND, false, false>(a);
  else if (a.l.f.past) last_many<BEHIND, true, true>(a);
  else last_many<BEHIND, true, false>(a);
}
extern "C" __global__ void __launch_bounds__(32 * WIDE_WARPS, 4) white_wide(const __grid_constant__ WideLastArgs a) { last_many_any<false>(a); }
extern "C" __global__ void __launch_bounds__(32 * WIDE_WARPS, 4) behind_wide(const __grid_constant__ WideLastArgs a) { last_many_any<true>(a); }
#endif
