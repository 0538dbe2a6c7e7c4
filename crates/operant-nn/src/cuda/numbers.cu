/* Numbers as matrix products read them, eight at a time: bf16, f16 or f32. Defined before this text: SIXTEEN (16 bits or not), F16 (0 or 1). */
#if SIXTEEN
typedef unsigned short Number;
FN uint32_t two_numbers(float low, float high) {
    uint32_t word;
#if F16
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
#else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
#endif
    return word;
}
FN Number to_number(float x) { return (Number)two_numbers(x, 0.0f); }
struct Eight {
    uint4 words;
};
FN Eight fetch8(const Number *from) { return {*(const uint4 *)from}; }
FN void unpack8(const Eight &eight, float *x) {
    const uint32_t words[4] = {eight.words.x, eight.words.y, eight.words.z, eight.words.w};
#pragma unroll
    for (int k = 0; k < 4; k++) {
#if F16
        asm("{.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.f32.f16 %0, low;\ncvt.f32.f16 %1, high;}"
            : "=f"(x[2 * k]), "=f"(x[2 * k + 1])
            : "r"(words[k]));
#else
        x[2 * k] = __uint_as_float(words[k] << 16);
        x[2 * k + 1] = __uint_as_float(words[k] & 0xFFFF0000u);
#endif
    }
}
FN void store8(Number *to, const float *x) {
    *(uint4 *)to = make_uint4(two_numbers(x[0], x[1]), two_numbers(x[2], x[3]), two_numbers(x[4], x[5]), two_numbers(x[6], x[7]));
}
#else
typedef float Number;
FN Number to_number(float x) { return x; }
struct Eight {
    float4 low, high;
};
FN Eight fetch8(const Number *from) { return {((const float4 *)from)[0], ((const float4 *)from)[1]}; }
FN void unpack8(const Eight &eight, float *x) {
    x[0] = eight.low.x, x[1] = eight.low.y, x[2] = eight.low.z, x[3] = eight.low.w;
    x[4] = eight.high.x, x[5] = eight.high.y, x[6] = eight.high.z, x[7] = eight.high.w;
}
FN void store8(Number *to, const float *x) {
    ((float4 *)to)[0] = make_float4(x[0], x[1], x[2], x[3]);
    ((float4 *)to)[1] = make_float4(x[4], x[5], x[6], x[7]);
}
#endif
