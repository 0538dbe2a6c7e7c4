/* PPO wholly on the GPU for small networks: separate policy and value networks of two hidden layers of HID (32, 64, or in 16-bit
   numbers 96 or 128), products on tensor cores with sums in f32, f32 master weights. After normalise.cu: this text, then a tile's way
   through a network and back (tf32.cu, or sixteen.cu after the numbers of bf16.cu or f16.cu), then kernels: collect.cu and learn.cu. Defined before this text, beside what
   adapter.cu asks for: HID OUT (logits, or numbers of an action) CONTINUOUS RELU TILES (16-env tiles of a warp in `collect`)
   WARPS (of a block in `collect`) TOLD (envs whose episodes are told) PASSES (products for one: 3 for f32), the offset of every
   tensor among the parameters: AW1 AB1 AW2 AB2 AW3 AB3 CW1 CB1 CW2 CB2 CW3 CB3 LOG_STD, and the sizes that the last lines
   hold to those of algo/ppo/cuda.rs. Of the two PARTs, COLLECTING and LEARNING, each is compiled by itself, both at the same time.

   A tile is 16 samples, the rows of an mma. Fragments: lane = 4 * g + t holds rows g and g + 8, columns 2t and 2t + 1. One column of an observation is 1, so that sums of gradients over
   samples (biases) come with the products. Where they fit, the gradients of W1, b1, b2 and W3 share the eight columns of
   one product: registers are what limits `learn`. */
static_assert(OBS <= 7 && OUT <= 7 && HID % 32 == 0 && HID <= 128, "shapes that these kernels serve");
#if OBS + 2 + OUT <= 8
#define SHARED_COLUMNS 1
#define ONE_COLUMN OBS
#define B2_COLUMN (OBS + 1)
#define FIRST_OUTPUT (OBS + 2)
#else
#define SHARED_COLUMNS 0
#define ONE_COLUMN 7
#define B2_COLUMN 7
#define FIRST_OUTPUT 0
#endif
/* Whether one lane has all outputs of a row. */
#define ONE_LANE (OUT <= 2 && FIRST_OUTPUT % 2 == 0)
#define NT (HID / 8)  /* tiles of columns */
#define KS (HID / 16) /* steps of a sum */
/* Tiles of columns whose sums are made side by side: a product waits for the one before it in its own sum alone. */
#define COLUMNS (NT <= 8 ? NT : NT / 2)
/* Whether W2's gradient is too large for the registers of a warp, so that a block makes it together. */
#define TOGETHER (HID > 64)

FN float activate(float x) {
#if RELU
    return fmaxf(x, 0.0f);
#elif PASSES == 3
    return tanhf(x);
#else
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

/* ---- Parameters by groups ---- */

struct Offsets {
    int w1, b1, w2, b2, w3, b3, outputs;
};
FN Offsets offsets_of(int critic) {
    return critic ? Offsets{CW1, CB1, CW2, CB2, CW3, CB3, 1} : Offsets{AW1, AB1, AW2, AB2, AW3, AB3, OUT};
}

/* Parameters and gradients go by groups of two numbers per lane, as products leave them: W2, then W1 with b1, then W3 with
   b2, then b3 with log_std. */
#define W2_GROUPS (KS * NT * 2)
#define GROUPS (W2_GROUPS + KS * 2 * (2 - SHARED_COLUMNS) + 1)

/* Where number k of a lane's pair lies among the parameters, or -1. */
FN int place_of(int critic, int group, int lane, int k) {
    const Offsets o = offsets_of(critic);
    const int g = lane / 4, column = lane % 4 * 2 + k, output = column - FIRST_OUTPUT;
    if (group < W2_GROUPS) {
        const int row = group / (NT * 2) * 16 + group % 2 * 8 + g;
        return o.w2 + row * HID + group / 2 % NT * 8 + column;
    }
    if (group == GROUPS - 1) {
        if (g == 0) return output >= 0 && output < o.outputs ? o.b3 + output : -1;
        return CONTINUOUS && g == 1 && !critic && output >= 0 && output < OUT ? LOG_STD + output : -1;
    }
    group -= W2_GROUPS;
    const int row = group % (KS * 2) * 8 + g;
    if (group < KS * 2) {
        if (column < OBS) return o.w1 + row * OBS + column;
        if (column == ONE_COLUMN) return o.b1 + row;
    }
    if (group >= KS * 2 * (1 - SHARED_COLUMNS)) {
        if (output >= 0 && output < o.outputs) return o.w3 + output * HID + row;
        if (column == B2_COLUMN) return o.b2 + row;
    }
    return -1;
}

/* What a warp reads of 16 samples; the last column is the log-probability for the policy, the old value for the value. */
struct TileData {
    float obs[16 * OBS];
    float action[16 * (CONTINUOUS ? OUT : 1)];
    float advantage[16], old[16];
};
#define TILE_CHUNKS ((int)sizeof(TileData) / 16)

/* The gradients that a warp has added up: of W2 all, or some rows and columns. */
struct Gradients {
#if TOGETHER
    float w2[2][NT / 2][4];
#else
    float w2[KS][NT][4];
#endif
    float first[KS][4]; /* W1, b1 */
#if !SHARED_COLUMNS
    float last[KS][4]; /* b2, W3 transposed */
#endif
    float b3[2];
#if CONTINUOUS
    float log_std[2];
#endif
};

#if SHARED_COLUMNS
#define LAST first
#else
#define LAST last
#endif
