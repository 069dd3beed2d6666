// How operand tiles of large float64 products lie in shared memory: by lines of memory, as bulk copies bring them, which begin
// and end at multiples of 16 bytes, so that of two elements one may be another line's. Free of CUDA, so that a host test can
// check that reads meet no bank twice.
#pragma once

#include "../index.h"

namespace packedtri::cuda {

// 128 rows of A (or columns of B) by 32 steps of k, K-major when K_MAJOR (see Panel).
//
// In a packed triangle line R begins R (R + 1) / 2 elements behind the first: of four lines the second and the third begin
// at odd elements, or the other two, and lie one place further here. Other operands are copied as if they did. To read 16
// elements of 8 bytes at a time, four of each of four lines, half a warp takes every second element: two lines that begin
// alike lie 8 elements apart modulo 16, and two lie on the odd places between them. So all meet different banks.
template <bool K_MAJOR_>
struct LineTile {
    static constexpr bool K_MAJOR = K_MAJOR_;
    static constexpr int SIDE = 128, BK = 32;
    static constexpr int LINES = K_MAJOR ? SIDE : BK, LENGTH = K_MAJOR ? BK : SIDE;
    // Of so many lines that follow one another those that are read together are all, or every second.
    static constexpr int GROUP = K_MAJOR ? 4 : 8, GROUP_SIZE = K_MAJOR ? 140 : 1048;
    static constexpr int SIZE = LINES / GROUP * GROUP_SIZE;

    // How many places behind its own a line begins; `flip`: where others do that otherwise do not.
    PACKEDTRI_HD static constexpr int shift(int line, bool flip) {
        return ((line + 1) / 2 + (flip ? 1 : 0)) % 2;
    }
    // A multiple of 16 bytes.
    PACKEDTRI_HD static constexpr int place(int line) {
        const int x = line % GROUP, pair = x / 2;
        // The third of four lines lies behind the fourth, with which the first shares its parity.
        if (K_MAJOR)
            return line / GROUP * GROUP_SIZE + (x == 0 ? 0 : x == 1 ? 34 : x == 2 ? 106 : 72);
        return line / GROUP * GROUP_SIZE + x % 2 * (GROUP_SIZE / 2) + pair * 130 + pair / 2 * 4;
    }

    // Which of 8 rows or columns the tensor cores take for number x.
    PACKEDTRI_HD static constexpr int taken(int x) { return K_MAJOR ? x : x % 4 * 2 + x / 4; }
    // Which of 16 steps lane t of 4 has as its element q of 4.
    PACKEDTRI_HD static constexpr int step(int t, int q) { return q / 2 * 8 + 2 * t + q % 2; }

    // Where a lane finds its elements: lane (g, t), of 8 by 4, row or column taken(g) of each 8 from `first` on, a multiple
    // of 8.
    class Lane {
      public:
        PACKEDTRI_HD constexpr Lane(int lane, int first, bool flip) : at_{} {
            const int g = lane / 4, t = lane % 4;
            for (int e = 0; e < PARITIES; ++e) {
                const int line = K_MAJOR ? first + g : step(t, e),
                          within = K_MAJOR ? step(t, e) : first + taken(g);
                at_[e] = place(line) + shift(line, flip) + within;
            }
        }
        // In the 8 rows or columns of this number, element q of 16 steps of this number.
        PACKEDTRI_HD constexpr int at(int eight, int sixteen, int q) const {
            if (K_MAJOR)
                return at_[0] + eight * (8 / GROUP * GROUP_SIZE) + sixteen * 16 + step(0, q);
            return at_[q % PARITIES] + eight * 8 + (sixteen * 2 + q / 2) * GROUP_SIZE;
        }

      private:
        static constexpr int PARITIES = K_MAJOR ? 1 : 2;
        int at_[PARITIES];
    };
};

}  // namespace packedtri::cuda
