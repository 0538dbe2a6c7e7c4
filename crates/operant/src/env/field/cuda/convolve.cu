/* Convolution as an implicit matrix product on Hopper's tensor cores: 128 pixels (8 rows of 16) by TN output channels per tile.

   Activations have a border, so the tensor copy engine brings a slab of (8 + k - 1) x 16 pixels x 128 bytes of channels per
   column of the kernel; its k rows are the same slab 2,048 bytes further on. One warp copies, teams of two warpgroups
   multiply; with two teams one multiplies while the other writes. Weights that fit stay for all tiles of an operator.
   Results leave with sums of each channel over 64 pixels, which `gather` adds up in their order: sums do not depend on which
   block came last. */
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
  u8* y;         /* [B, H, W, outputs] */
  const float* bias; /* [operators, outputs] */
  float* parts;  /* [B, 2 tiles, 2, outputs] */
  u32 images, side, outputs, rows_per_op, kernel, origin, chunks, tiles, blocks_n, a_slots, b_slots, resident, counted;
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

/* Which image, tile and block of outputs. */
struct Place {
  u32 image, tile, block, weights;
};
FN Place place(const ConvArgs& a, u32 number) {
  Place p;
  p.block = number % a.blocks_n;
  number /= a.blocks_n;
  p.tile = number % a.tiles;
  p.image = number / a.tiles;
  p.weights = (p.image / a.rows_per_op) * a.blocks_n + p.block;
  return p;
}

template <int TN, int TEAMS>
FN void convolve(const ConvArgs& a) {
  extern __shared__ u8 shared[];
  u8* room = shared + ((1024 - (shared_address(shared) & 1023)) & 1023);
  const u32 k = a.kernel, a_bytes = ROWS_BYTES * (7 + k), b_bytes = TN * 128;
  const u32 a_ring = shared_address(room), b_ring = a_ring + a.a_slots * a_bytes;
  u8* after = room + a.a_slots * a_bytes + a.b_slots * b_bytes;
  u8* staging = after;
  float* reduced = (float*)(after + TEAMS * 2 * 64 * STAGE_ROW);
  const u32 barriers = shared_address(reduced + TEAMS * 2 * 512);
  const u32 full_a = barriers, empty_a = full_a + 8 * MOST_A, full_b = empty_a + 8 * MOST_A, empty_b = full_b + 8 * MOST_B;
  const u32 order = empty_b + 8 * MOST_B;
  if (threadIdx.x == 0) {
    for (u32 i = 0; i < a.a_slots; ++i) barrier_init(full_a + 8 * i, 1), barrier_init(empty_a + 8 * i, 8);
    u32 readers = a.resident ? 8 * TEAMS : 8;
    for (u32 i = 0; i < a.b_slots; ++i) barrier_init(full_b + 8 * i, 1), barrier_init(empty_b + 8 * i, readers);
    for (u32 i = 0; i < TEAMS; ++i) barrier_init(order + 8 * i, 8);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  const u32 count = a.images * a.tiles * a.blocks_n, columns = a.side / 16;
  const u32 passes = KIND == 3 ? 3 : 1, slabs = passes * a.chunks * k;

  if (threadIdx.x >= TEAMS * 256) {
    if (threadIdx.x != TEAMS * 256) return;
    asm volatile("prefetch.tensormap [%0];" ::"l"(&a.x) : "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(&a.w) : "memory");
    u32 slot_a = 0, turn_a = 0, slot_b = 0, turn_b = 0, held = ~0u;
    for (u32 number = blockIdx.x; number < count; number += gridDim.x) {
      Place p = place(a, number);
      int y = (p.tile / columns) * 8 + a.origin, x = (p.tile % columns) * 16 + a.origin;
      bool bring = !a.resident || held != p.weights;
      held = p.weights;
      for (u32 pass = 0; pass < passes; ++pass) {
        int x_plane = KIND == 3 && pass == 1, w_plane = KIND == 3 && pass == 2;
        for (u32 chunk = 0; chunk < a.chunks; ++chunk) {
          int channel = chunk * (128 / BYTES);
          for (u32 dx = 0; dx < k; ++dx) {
            barrier_wait(empty_a + 8 * slot_a, (turn_a & 1) ^ 1);
            barrier_expect(full_a + 8 * slot_a, a_bytes);
            copy5(a_ring + slot_a * a_bytes, &a.x, full_a + 8 * slot_a, channel, x_plane, x + dx, y, p.image);
            if (++slot_a == a.a_slots) slot_a = 0, ++turn_a;
            if (!bring) continue;
            for (u32 dy = 0; dy < k; ++dy) {
              barrier_wait(empty_b + 8 * slot_b, (turn_b & 1) ^ 1);
              barrier_expect(full_b + 8 * slot_b, b_bytes);
              copy5(b_ring + slot_b * b_bytes, &a.w, full_b + 8 * slot_b, channel, w_plane, p.block * TN, dy * k + dx, p.image / a.rows_per_op);
              if (++slot_b == a.b_slots) slot_b = 0, ++turn_b;
            }
          }
        }
      }
    }
    return;
  }

  const u32 group = threadIdx.x / 128, team = group / 2, half = group % 2, thread = threadIdx.x % 128;
  const u32 warp = thread / 32, lane = thread % 32;
  const int id = 1 + group;
  u8* stage = staging + group * 64 * STAGE_ROW;
  float* own = reduced + group * 512;
  u32 sequence = 0, held = ~0u, visits = 0;
  for (u32 number = blockIdx.x; number < count; number += gridDim.x, ++sequence) {
    Place p = place(a, number);
    if (held != p.weights) held = p.weights, ++visits;
    bool mine = sequence % TEAMS == team;
    /* Resident weights are given back when the next tile, whoever's it is, needs others. */
    bool give_back = false;
    if (a.resident) {
      u32 next = number + gridDim.x;
      give_back = next < count && place(a, next).weights != p.weights;
    }
    if (mine) {
      float d[TN / 2];
      const u32 first_a = sequence * slabs, first_b = sequence * slabs * k;
      u32 slot_a = first_a % a.a_slots, turn_a = first_a / a.a_slots;
      u32 slot_b = a.resident ? 0 : first_b % a.b_slots, turn_b = a.resident ? visits - 1 : first_b / a.b_slots;
      u32 done_a = ~0u, done_b = ~0u;
      /* Teams multiply in turn: one that waited for a slot two rounds ahead would take an earlier round for it. */
      if (TEAMS > 1 && sequence > 0) barrier_wait(order + 8 * team, ((sequence - 1) / TEAMS) & 1);
      for (u32 slab = 0; slab < slabs; ++slab) {
        barrier_wait(full_a + 8 * slot_a, turn_a & 1);
        for (u32 dy = 0; dy < k; ++dy) {
          barrier_wait(full_b + 8 * slot_b, turn_b & 1);
          u64 left = descriptor(a_ring + slot_a * a_bytes + (4 * half + dy) * ROWS_BYTES);
          u64 right = descriptor(b_ring + slot_b * b_bytes);
          products_begin();
#pragma unroll
          for (int part = 0; part < 4; ++part) multiply<TN>(d, left + 2 * part, right + 2 * part, (slab | dy | part) != 0);
          products_commit();
          products_wait<1>();
          if (lane == 0) {
            if (done_b != ~0u && !a.resident) barrier_arrive(empty_b + 8 * done_b);
            if (done_a != ~0u) barrier_arrive(empty_a + 8 * done_a);
          }
          done_b = slot_b;
          done_a = dy + 1 == k ? slot_a : ~0u;
          if (++slot_b == a.b_slots && !a.resident) slot_b = 0, ++turn_b;
        }
        if (++slot_a == a.a_slots) slot_a = 0, ++turn_a;
      }
      if (TEAMS > 1 && lane == 0) barrier_arrive(order + 8 * ((sequence + 1) % TEAMS));
      products_wait<0>();
#pragma unroll
      for (int i = 0; i < TN / 2; ++i) asm volatile("" : "+f"(d[i])::"memory");
      if (lane == 0) {
        if (!a.resident) barrier_arrive(empty_b + 8 * done_b);
        barrier_arrive(empty_a + 8 * done_a);
      }
      if (a.resident && give_back && lane == 0)
        for (u32 i = 0; i < a.b_slots; ++i) barrier_arrive(empty_b + 8 * i);

      const u32 y = (p.tile / columns) * 8 + 4 * half, x = (p.tile % columns) * 16;
      const float* bias = a.bias + (p.image / a.rows_per_op) * a.outputs;
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
    } else if (a.resident && give_back && lane == 0) {
      for (u32 i = 0; i < a.b_slots; ++i) barrier_arrive(empty_b + 8 * i);
    }
  }
}

extern "C" __global__ void __launch_bounds__(544, 1) convolve_64(const __grid_constant__ ConvArgs a) { convolve<64, 2>(a); }
extern "C" __global__ void __launch_bounds__(544, 1) convolve_128(const __grid_constant__ ConvArgs a) { convolve<128, 2>(a); }
extern "C" __global__ void __launch_bounds__(288, 1) convolve_256(const __grid_constant__ ConvArgs a) { convolve<256, 1>(a); }

struct GatherArgs {
  const float* parts; /* [B, groups, parts of a group, 2, outputs] */
  float* sums;        /* [B, groups, 2, outputs] */
  u32 outputs, parts_per_group;
};
static_assert(sizeof(GatherArgs) == GATHER_BYTES, "as in Rust");

/* A group's sums per block, in the order of parts: threads take every eighth, fourth, second or each of them. */
extern "C" __global__ void __launch_bounds__(256) gather(const __grid_constant__ GatherArgs a) {
  __shared__ float4 slices[256];
  const u32 columns = a.outputs / 2, count = columns <= 32 ? 8 : columns <= 64 ? 4 : columns <= 128 ? 2 : 1, wide = 256 / count;
  const u32 slice = threadIdx.x / wide;
  const float4* from = (const float4*)a.parts + (u64)blockIdx.x * a.parts_per_group * columns;
  for (u32 first = 0; first < columns; first += wide) {
    const u32 column = first + threadIdx.x % wide;
    float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (column < columns) {
#pragma unroll 8
      for (u32 part = slice; part < a.parts_per_group; part += count) {
        float4 v = from[(u64)part * columns + column];
        total.x += v.x, total.y += v.y, total.z += v.z, total.w += v.w;
      }
    }
    slices[threadIdx.x] = total;
    __syncthreads();
    if (slice == 0 && column < columns) {
      for (u32 i = 1; i < count; ++i) {
        float4 v = slices[i * wide + threadIdx.x];
        total.x += v.x, total.y += v.y, total.z += v.z, total.w += v.w;
      }
      ((float4*)a.sums)[(u64)blockIdx.x * columns + column] = total;
    }
    __syncthreads();
  }
}
