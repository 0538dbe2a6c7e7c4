/* How images are cut into tiles of TILE pixels that see a border around them, for patches.cu and octets.cu: numbers 0 to 17 are those
   that patches.cu names. */
/* From where to where: the way forward, or back from outputs to inputs. */
struct Way {
    int h, w, from_h, from_w, padding, channels, lines, wide; /* lines and wide: of a bordered part */
};
FN Way way_of(const Args &a, int back) {
    Way s;
    s.h = a.n[back ? 0 : 10], s.w = a.n[back ? 1 : 11];
    s.from_h = a.n[back ? 10 : 0], s.from_w = a.n[back ? 11 : 1];
    s.padding = back ? a.n[4] - 1 - a.n[7] : a.n[7];
    s.channels = a.n[back ? 3 : 2];
    s.lines = (a.n[14] ? s.h : a.n[15]) + a.n[4] - 1;
    s.wide = s.w + a.n[5] - 1;
    return s;
}
FN uint32_t tiles_of(const Args &a, uint32_t rows) {
    return a.n[17] ? (rows * a.n[17] + TILE - 1) / TILE : a.n[14] ? (rows + a.n[14] - 1) / a.n[14] : rows * a.n[16];
}
/* Where a tile's pixels begin, in which line of an image, and where what it may have ends; the same of what it sees, in numbers. */
struct Tile {
    int pixel, line, end, source, source_end;
};
FN Tile tile_of(const Args &a, const Way &s, uint32_t tile, uint32_t rows) {
    const int area = s.h * s.w, from_area = s.from_h * s.from_w;
    if (a.n[17]) {
        const int end = rows * a.n[17], first = tile * TILE;
        return {first, 0, end, first * s.channels, end * s.channels};
    }
    const int end = (int)rows * from_area * s.channels;
    if (a.n[14]) {
        const int image = tile * a.n[14];
        return {image * area, 0, (int)rows * area, image * from_area * s.channels, end};
    }
    const int image = tile / a.n[16], line = tile % a.n[16] * a.n[15];
    return {image * area + line * s.w, line, (image + 1) * area, (image * s.from_h + line) * s.from_w * s.channels, end};
}
/* Pixels of a tile, and where pixel p of these lies among the bordered ones. */
FN int pixels_of(const Args &a, const Way &s) { return a.n[17] ? TILE : a.n[14] ? a.n[14] * s.h * s.w : a.n[15] * s.w; }
FN int nearby(const Args &a, const Way &s, int p) {
    if (a.n[17] || p >= pixels_of(a, s)) return a.n[17] ? p : 0;
    const int area = s.h * s.w, part = a.n[14] ? p / area : 0, at = p - part * area;
    return (part * s.lines + at / s.w) * s.wide + at % s.w;
}
/* Where each bordered pixel comes from, relative to the tile: in numbers, and by its line, which is far away for one beside the image.
   Gives how many there are. */
FN int sources(const Args &a, const Way &s, int2 *source) {
    const int part = s.lines * s.wide, count = a.n[17] ? TILE : (a.n[14] ? a.n[14] : 1) * part;
    for (int i = threadIdx.x; i < count; i += THREADS) {
        const int of = i / part, y = i % part / s.wide - s.padding, x = i % s.wide - s.padding;
        const int inside = (uint32_t)x < (uint32_t)s.from_w;
        source[i] = a.n[17] ? int2{i * s.channels, 0} : int2{((of * s.from_h + y) * s.from_w + x) * s.channels, inside ? y : -65536};
    }
    return count;
}
FN int from(const Way &s, const Tile &tile, int2 source) {
    const int at = tile.source + source.x;
    return (uint32_t)(tile.line + source.y) < (uint32_t)s.from_h && at < tile.source_end ? at : -1;
}
