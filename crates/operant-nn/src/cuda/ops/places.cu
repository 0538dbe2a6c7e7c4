/* Ops over the places of a row [places, channels]: pools, sums, vectors that all places share. */

/* A row of [n0 places, n1 channels] to [channels]: n2 is 0 for the mean, 1 for the largest. A block per row. */
KERNEL(global_pool_forward) {
    BEGIN;
    __shared__ float room[THREADS];
    if (block >= rows) return;
    const uint32_t places = a.n[0], channels = a.n[1];
    const real *x = RX(0) + (size_t)block * places * channels;
    float *y = Y(0) + (size_t)block * channels;
    for (uint32_t first = 0; first < channels; first += THREADS) {
        const uint32_t width = min((uint32_t)THREADS, channels - first), sides = THREADS / width;
        const uint32_t c = first + threadIdx.x % width, side = threadIdx.x / width;
        if (a.n[2]) {
            if (side) continue;
            float most = x[c];
            for (uint32_t p = 1; p < places; ++p) most = x[p * channels + c] > most ? (float)x[p * channels + c] : most;
            y[c] = most;
            continue;
        }
        float sum = 0.0f;
        if (side < sides)
            for (uint32_t p = side; p < places; p += sides) sum += x[p * channels + c];
        sum = over_places(sum, width, sides, room);
        if (side == 0) y[c] = sum / (float)places;
    }
}
KERNEL(global_pool_backward) {
    BEGIN;
    const uint32_t places = a.n[0], channels = a.n[1], len = places * channels;
    const real *x = RX(0);
    const float *y = Y(0), *dy = DY(0);
    real *dx = RDX(0);
    if (!a.n[2]) {
        const float scale = 1.0f / (float)places;
        EACH(i, rows * len) dx[i] = dy[i / len * channels + i % channels] * scale;
        return;
    }
    EACH(i, rows * channels) {
        const uint32_t row = i / channels, c = i % channels;
        const size_t first = (size_t)row * len + c;
        int open = 1;
        for (uint32_t p = 0; p < places; ++p) {
            const int chosen = open && x[first + p * channels] == y[i];
            dx[first + p * channels] = chosen ? dy[i] : 0.0f;
            open &= !chosen;
        }
    }
}

/* Gradient of a vector that all places of a row share: Σ dy, or Σ dy·x with n2 = 1. A block per row of [n0, n1]. */
KERNEL(vector_gradient) {
    BEGIN;
    __shared__ float room[THREADS];
    if (block >= rows) return;
    const uint32_t places = a.n[0], channels = a.n[1];
    const size_t at = (size_t)block * places * channels;
    const real *x = a.n[2] ? RX(0) + at : nullptr, *dy = RDY(0) + at;
    float *dv = DX(1);
    if (!dv) return;
    for (uint32_t first = 0; first < channels; first += THREADS) {
        const uint32_t width = min((uint32_t)THREADS, channels - first), sides = THREADS / width;
        const uint32_t c = first + threadIdx.x % width, side = threadIdx.x / width;
        float sum = 0.0f;
        if (side < sides)
            for (uint32_t p = side; p < places; p += sides) sum += x ? dy[p * channels + c] * x[p * channels + c] : (float)dy[p * channels + c];
        sum = over_places(sum, width, sides, room);
        if (side == 0) dv[(size_t)block * channels + c] = sum;
    }
}
/* Sums of columns: dy as [rows·n0, n1], n2 of its rows a block, to the scratch [blocks][n1]. */
KERNEL(columns) {
    BEGIN;
    __shared__ float room[THREADS];
    const uint32_t count = rows * a.n[0], channels = a.n[1], begin = block * a.n[2];
    if (begin >= count) return;
    const uint32_t end = min(begin + a.n[2], count);
    const real *dy = RDY(0);
    float *to = SCRATCH + (size_t)block * channels;
    for (uint32_t first = 0; first < channels; first += THREADS) {
        const uint32_t width = min((uint32_t)THREADS, channels - first), sides = THREADS / width;
        const uint32_t c = first + threadIdx.x % width, side = threadIdx.x / width;
        float sum = 0.0f;
        if (side < sides)
            for (uint32_t p = begin + side; p < end; p += sides) sum += dy[(size_t)p * channels + c];
        sum = over_places(sum, width, sides, room);
        if (side == 0) to[c] = sum;
    }
}

/* n1 numbers that lie together to one, n0 of these a row: n2 is 0 for the sum, 1 for the mean, 2 for the largest; n3 whether the result
   has several axes. A warp each. */
KERNEL(reduce_forward) {
    BEGIN;
    const uint32_t at = block * (THREADS / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (at >= rows * a.n[0]) return;
    const real *x = RX(0) + (size_t)at * a.n[1];
    float sum = a.n[2] == 2 ? -INFINITY : 0.0f;
    for (uint32_t i = lane; i < a.n[1]; i += 32) sum = a.n[2] == 2 ? fmaxf(sum, x[i]) : sum + x[i];
    sum = a.n[2] == 2 ? warp_max(sum) : warp_sum(sum);
    if (lane) return;
    if (a.n[2] == 1) sum /= (float)a.n[1];
    if (a.n[3])
        RY(0)[at] = sum;
    else
        Y(0)[at] = sum;
}
KERNEL(reduce_backward) {
    BEGIN;
    const uint32_t at = block * (THREADS / 32) + threadIdx.x / 32, lane = threadIdx.x % 32, len = a.n[1];
    if (at >= rows * a.n[0]) return;
    const float dy = a.n[3] ? (float)RDY(0)[at] : DY(0)[at];
    real *dx = RDX(0) + (size_t)at * len;
    uint32_t best = len;
    if (a.n[2] == 2) {
        const real *x = RX(0) + (size_t)at * len;
        float most = -INFINITY;
        for (uint32_t i = lane; i < len; i += 32) most = fmaxf(most, x[i]);
        most = warp_max(most);
        for (uint32_t i = lane; i < len; i += 32)
            if (x[i] == most && i < best) best = i;
        best = warp_min(best);
    }
    const float share = a.n[2] == 1 ? dy / (float)len : dy;
    for (uint32_t i = lane; i < len; i += 32) dx[i] = a.n[2] < 2 || i == best ? share : 0.0f;
}

/* Windows of images: n0 h, n1 w, n2 channels, n3 h', n4 w', n5 kernel, n6 stride, n7 padding, n8 how (0 max, 1 mean with the border,
   2 mean without it). */
FN float pool_share(const Args &a, int top, int bottom, int left, int right) {
    return 1.0f / (float)(a.n[8] == 2 ? (bottom - top) * (right - left) : a.n[5] * a.n[5]);
}
KERNEL(pool_forward) {
    BEGIN;
    const int h = a.n[0], w = a.n[1], channels = a.n[2], ho = a.n[3], wo = a.n[4];
    const real *x = RX(0);
    real *y = RY(0);
    EACH(i, rows * ho * wo * channels) {
        const uint32_t c = i % channels, place = i / channels, ox = place % wo, oy = place / wo % ho;
        const real *image = x + (size_t)(place / (wo * ho)) * h * w * channels + c;
        const int first = (int)oy * a.n[6] - a.n[7], side = (int)ox * a.n[6] - a.n[7];
        const int top = max(first, 0), bottom = min(first + a.n[5], h), left = max(side, 0), right = min(side + a.n[5], w);
        float result = a.n[8] == 0 ? -INFINITY : 0.0f;
        for (int r = top; r < bottom; ++r)
            for (int p = left; p < right; ++p) {
                const float v = image[(size_t)(r * w + p) * channels];
                result = a.n[8] == 0 ? (v > result || v != v ? v : result) : result + v;
            }
        y[i] = a.n[8] == 0 ? result : result * pool_share(a, top, bottom, left, right);
    }
}
/* Each pixel asks the windows that it is in. */
KERNEL(pool_backward) {
    BEGIN;
    const int h = a.n[0], w = a.n[1], channels = a.n[2], ho = a.n[3], wo = a.n[4], k = a.n[5], stride = a.n[6], padding = a.n[7];
    const real *x = RX(0), *y = RY(0), *dy = RDY(0);
    real *dx = RDX(0);
    EACH(i, rows * h * w * channels) {
        const uint32_t c = i % channels, place = i / channels;
        const int px = place % w, py = place / w % h;
        const size_t row = place / (w * h);
        const real *image = x ? x + row * h * w * channels + c : nullptr;
        const int last_y = min((py + padding) / stride, ho - 1), last_x = min((px + padding) / stride, wo - 1);
        const int first_y = max((py + padding - k + stride) / stride, 0), first_x = max((px + padding - k + stride) / stride, 0);
        float sum = 0.0f;
        for (int oy = py + padding - k + 1 <= 0 ? 0 : first_y; oy <= last_y; ++oy)
            for (int ox = px + padding - k + 1 <= 0 ? 0 : first_x; ox <= last_x; ++ox) {
                const size_t at = ((row * ho + oy) * wo + ox) * channels + c;
                const int t0 = oy * stride - padding, l0 = ox * stride - padding;
                const int top = max(t0, 0), bottom = min(t0 + k, h), left = max(l0, 0), right = min(l0 + k, w);
                if (a.n[8]) {
                    sum += dy[at] * pool_share(a, top, bottom, left, right);
                    continue;
                }
                /* The first of equals has it all. */
                const float most = y[at];
                int mine = image[(size_t)(py * w + px) * channels] == most;
                for (int r = top; mine && r <= py; ++r)
                    for (int p = left; mine && p < (r == py ? px : right); ++p) mine = image[(size_t)(r * w + p) * channels] != most;
                if (mine) sum += dy[at];
            }
        dx[i] = sum;
    }
}

/* The largest of windows that lie side by side without a border: a thread per window. The numbers are those of pool_forward. */
KERNEL(windows_forward) {
    BEGIN;
    const int h = a.n[0], w = a.n[1], channels = a.n[2], ho = a.n[3], wo = a.n[4], k = a.n[5];
    const real *x = RX(0);
    real *y = RY(0);
    EACH(i, rows * ho * wo * channels) {
        const uint32_t c = i % channels, place = i / channels, line = place / wo, ox = place % wo, row = line / ho, oy = line % ho;
        const real *image = x + ((size_t)(row * h + oy * k) * w + ox * k) * channels + c;
        float most = -INFINITY;
        for (int r = 0; r < k; ++r)
            for (int p = 0; p < k; ++p) {
                const float v = image[(size_t)(r * w + p) * channels];
                most = v > most || v != v ? v : most;
            }
        y[i] = most;
    }
}
/* What lies behind the last windows belongs to them. */
KERNEL(windows_backward) {
    BEGIN;
    const int h = a.n[0], w = a.n[1], channels = a.n[2], ho = a.n[3], wo = a.n[4], k = a.n[5];
    const real *x = RX(0), *y = RY(0), *dy = RDY(0);
    real *dx = RDX(0);
    EACH(i, rows * ho * wo * channels) {
        const uint32_t c = i % channels, place = i / channels, line = place / wo, ox = place % wo, row = line / ho, oy = line % ho;
        const size_t first = ((size_t)(row * h + oy * k) * w + ox * k) * channels + c;
        const int down = oy + 1 == ho ? h - oy * k : k, along = ox + 1 == wo ? w - ox * k : k;
        const float most = y[i], d = dy[i];
        int open = 1;
        for (int r = 0; r < down; ++r)
            for (int p = 0; p < along; ++p) {
                const size_t at = first + (size_t)(r * w + p) * channels;
                const int mine = open && r < k && p < k && x[at] == most;
                dx[at] = mine ? d : 0.0f;
                open &= !mine;
            }
    }
}
