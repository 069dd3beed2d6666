// Shared-memory layouts of operand tiles: R rows of A (or columns of B) by BK steps of k.
#pragma once

namespace packedtri::cuda {

// Element (r, k) of a tile lies at r * R_STRIDE + k * K_STRIDE. PAD keeps the accesses of one warp
// in different banks; each user says why its value does.
template <int R, int BK, bool K_MAJOR, int PAD>
struct TileLayout {
    static constexpr int pitch = (K_MAJOR ? BK : R) + PAD;
    static constexpr int r_stride = K_MAJOR ? pitch : 1;
    static constexpr int k_stride = K_MAJOR ? 1 : pitch;
    static constexpr int size = pitch * (K_MAJOR ? R : BK);
    static constexpr bool k_major = K_MAJOR;

    __device__ static constexpr int at(int r, int k) { return r * r_stride + k * k_stride; }
};

}  // namespace packedtri::cuda
