// Solves with few right-hand sides: every row of the packed triangle is read once for several of them, as it lies.
#include "isa.h"
#include "lines.h"
#include "scale.h"
#include "workspace.h"

namespace packedtri::cpu::PACKEDTRI_ISA {
namespace {

// A sum of products of elements, in vectors. A complex one keeps t x and t times x with its parts
// exchanged, whose lanes give the four real sums.
template <class E>
struct Dot {
    using R = Real<E>;
    using V = typename Vector<R>::type;
    static constexpr int lanes = Vector<R>::lanes;
    static constexpr bool is_complex = Element<E>::reals == 2;
    V straight = {}, crossed = {};

    void add(V t, V x) {
        straight += t * x;
        if constexpr (is_complex) crossed += t * swap_pairs<R>(x);
    }

    E total() const {
        R re = 0, im = 0;
        for (int l = 0; l < lanes; ++l) {
            re += is_complex && l % 2 ? -straight[l] : straight[l];
            im += crossed[l];
        }
        if constexpr (is_complex) {
            return {re, im};
        } else {
            return re;
        }
    }
};

// `many` right-hand sides, which share the reading of the triangle.
template <class E, int many>
class VectorSolve {
    using R = Real<E>;
    static constexpr int lanes = Vector<R>::lanes;
    static constexpr int reals = Element<E>::reals;
    // Rows that share the reading of x, and those whose contributions are added up before others.
    static constexpr int group = 4, block = 64;

  public:
    VectorSolve(const VectorSubstitution& p, E* given)
        : p_(p), rows_{static_cast<const E*>(p.triangle), 0, true, true, true}, given_(given) {
        const int64_t pitch = part_stride(p.n);
        E* memory = static_cast<E*>(workspace(2 * many * pitch * sizeof(E)));
        for (int c = 0; c < many; ++c) {
            sums_[c] = memory + c * pitch;
            x_[c] = p.x_stride == 1 ? given + c * p.x_next : memory + (many + c) * pitch;
        }
    }

    void run() {
        if (p_.x_stride == 1) return substitute();
        for (int64_t i = 0; i < p_.n; ++i)
            for (int c = 0; c < many; ++c) x_[c][i] = given_[i * p_.x_stride + c * p_.x_next];
        substitute();
        for (int64_t i = 0; i < p_.n; ++i)
            for (int c = 0; c < many; ++c) given_[i * p_.x_stride + c * p_.x_next] = x_[c][i];
    }

  private:
    void substitute() {
        if (p_.transposed) {
            for (int64_t end = p_.n; end > 0; end -= block)
                upward_block(std::max<int64_t>(end - block, 0), end);
        } else {
            int64_t i = 0;
            for (; i + group <= p_.n; i += group) downward<group>(i);
            for (; i < p_.n; ++i) downward<1>(i);
        }
    }

    E divided(E x, int64_t i) const { return p_.unit ? x : Divisor<E>(rows_.line(i)[i]).divide(x); }

    static const R* parts(const E* x) { return reinterpret_cast<const R*>(x); }

    // Unknowns i0 ... i0 + rows - 1 of T y = x.
    template <int rows>
    void downward(int64_t i0) {
        Dot<E> sums[rows][many];
        const R *t[rows], *x[many];
        for (int r = 0; r < rows; ++r) t[r] = parts(rows_.line(i0 + r));
        for (int c = 0; c < many; ++c) x[c] = parts(x_[c]);
        const int64_t count = i0 * reals;
        int64_t k = 0;
        for (; k + lanes <= count; k += lanes)
#pragma GCC unroll 4
            for (int r = 0; r < rows; ++r) {
                const auto v = load(t[r] + k);
#pragma GCC unroll 4
                for (int c = 0; c < many; ++c) sums[r][c].add(v, load(x[c] + k));
            }
        for (int r = 0; r < rows && k < count; ++r)
            for (int c = 0; c < many; ++c)
                sums[r][c].add(load_first(t[r] + k, count - k), load_first(x[c] + k, count - k));
        for (int r = 0; r < rows; ++r) {
            const E* row = rows_.line(i0 + r);
            for (int c = 0; c < many; ++c) {
                E y = x_[c][i0 + r] - sums[r][c].total();
                for (int64_t q = i0; q < i0 + r; ++q) y = y - row[q] * x_[c][q];
                x_[c][i0 + r] = divided(y, i0 + r);
            }
        }
    }

    // Unknowns [begin, end) of T' y = x. What they contribute to those before is added up apart from x: a sum of such
    // sums rounds less than one of all contributions.
    void upward_block(int64_t begin, int64_t end) {
        for (int c = 0; c < many; ++c) std::fill_n(sums_[c], begin, E{});
        int64_t i = end;
        for (; i - group >= begin; i -= group) upward<group>(i - group, begin);
        for (; i > begin; --i) upward<1>(i - 1, begin);
        for (int c = 0; c < many; ++c)
            for (int64_t k = 0; k < begin; ++k) x_[c][k] = x_[c][k] + sums_[c][k];
    }

    // Unknowns i0 ... i0 + rows - 1, and what they contribute to those of their block and to the sums of the others.
    template <int rows>
    void upward(int64_t i0, int64_t begin) {
        // Held apart from x, which is written meanwhile.
        Scale<E> scales[rows][many];
        const R* t[rows];
        for (int r = rows - 1; r >= 0; --r) {
            const E* row = rows_.line(i0 + r);
            t[r] = parts(row);
            for (int c = 0; c < many; ++c) {
                const E y = x_[c][i0 + r] = divided(x_[c][i0 + r], i0 + r);
                for (int64_t q = i0; q < i0 + r; ++q) x_[c][q] = x_[c][q] - row[q] * y;
                scales[r][c] = Scale<E>(y);
            }
        }
        subtract(t, scales, x_, begin * reals, i0 * reals);
        subtract(t, scales, sums_, 0, begin * reals);
    }

    // Elements [k, end) of the rows, times their unknowns, from `to`.
    template <int rows>
    static void subtract(const R* const (&t)[rows], const Scale<E> (&scales)[rows][many],
                         E* const (&to)[many], int64_t k, int64_t end) {
        R* x[many];
        for (int c = 0; c < many; ++c) x[c] = reinterpret_cast<R*>(to[c]);
        for (; k + lanes <= end; k += lanes)
            add_scaled(
                t, scales, x, k, [](const R* from) { return load(from); },
                [](R* at, auto v) { std::memcpy(at, &v, sizeof v); });
        if (k < end)
            add_scaled(
                t, scales, x, k, [&](const R* from) { return load_first(from, end - k); },
                [&](R* at, auto v) { store_first(at, v, end - k); });
    }

    template <int rows, class Load, class Store>
    static void add_scaled(const R* const (&t)[rows], const Scale<E> (&scales)[rows][many],
                           R* const (&x)[many], int64_t k, Load load_at, Store store_at) {
        typename Vector<R>::type v[rows];
#pragma GCC unroll 4
        for (int r = 0; r < rows; ++r) v[r] = load_at(t[r] + k);
#pragma GCC unroll 4
        for (int c = 0; c < many; ++c) {
            auto sum = load_at(x[c] + k);
#pragma GCC unroll 4
            for (int r = 0; r < rows; ++r) sum -= scales[r][c].times(v[r]);
            store_at(x[c] + k, sum);
        }
    }

    const VectorSubstitution& p_;
    const Lines<E> rows_;
    E* const given_;
    E *x_[many], *sums_[many];
};

// Four at a time where there are registers for the sums of four rows with each.
template <class E>
void solve_vectors(const VectorSubstitution& p) {
    constexpr int many = vector_bytes == 64 && Element<E>::reals == 1 ? 4 : 2;
    E* x = static_cast<E*>(p.x);
    int64_t c = 0;
    for (; c + many <= p.count; c += many) VectorSolve<E, many>(p, x + c * p.x_next).run();
    for (; c < p.count; ++c) VectorSolve<E, 1>(p, x + c * p.x_next).run();
}

}  // namespace

void solve_vector(const VectorSubstitution& p) {
    with_solvable(p.dtype, [&](auto e) { solve_vectors<decltype(e)>(p); });
}

}  // namespace packedtri::cpu::PACKEDTRI_ISA
