// The kernel for float64 on Hopper: each block computes tile after tile. Some of its warps only load,
// and run ahead of those that multiply, past the end of a tile; the latter meet nobody but them, so that some
// store a tile while others multiply.
//
// They meet at the stages of a ring, each of which holds one step of a sum. The loading threads draw an item, and start
// its copies stage after stage; a stage is full when all these have landed and their first thread has written which item
// begins there, if one does. A stage is empty when every multiplying thread has gone past it, needed or not. An item
// without steps says that there are no more.
#pragma once

#include <type_traits>

#include "hopper.cuh"
#include "line_loader.cuh"
#include "line_mma_f64.cuh"
#include "loader_async.cuh"
#include "main_loop.cuh"
#include "mma_f64.cuh"
#include "panel.cuh"
#include "part_sums.cuh"
#include "persistent_mend.cuh"
#include "ring.cuh"
#include "scalar.cuh"

namespace packedtri::cuda {

// A product and its scratch memory.
struct PersistentArgs {
    ProductArgs<double> product;
    PartWork work;
    // Zero when the launch starts: how many items blocks have drawn after their first; and the words of
    // add_parts.
    int *drawn, *arrivals;
    double* partial;  // The sums of parts.
};

// STAGES_: copies of single elements go through the L1 cache, which has what the stages leave of a multiprocessor's memory.
// More of them than needed make these copies slow.
template <int SIDE, int STAGES_, bool A_K_MAJOR, bool B_K_MAJOR>
struct PersistentShape {
    static_assert(SIDE == 64 || SIDE == 128, "of a tile");
    static constexpr bool LARGE = SIDE == 128, a_k_major = A_K_MAJOR, b_k_major = B_K_MAJOR;
    using Mma = std::conditional_t<LARGE, LineMmaF64<A_K_MAJOR, B_K_MAJOR>,
                                   MmaF64<SIDE, SIDE, SIDE / PartWork::TILE, 32, SIDE / 2>>;
    using LayoutA = typename Mma::template Layout<Mma::BM, A_K_MAJOR>;
    using LayoutB = typename Mma::template Layout<Mma::BN, B_K_MAJOR>;
    static constexpr int A_SIZE = LARGE ? LineTile<A_K_MAJOR>::SIZE : LayoutA::size,
                         B_SIZE = LARGE ? LineTile<B_K_MAJOR>::SIZE : LayoutB::size;
    static constexpr int STAGES = STAGES_, BLOCKS_PER_SM = LARGE ? 1 : 2;
    static constexpr int CONSUMERS = Mma::THREADS, PRODUCERS = 128, THREADS = CONSUMERS + PRODUCERS;
    // Large tiles take longer to multiply, so that their loads had better not come in bursts.
    template <bool K_MAJOR, class Layout>
    using Loader = std::conditional_t<
        LARGE, LineLoader<PRODUCERS, LineTile<K_MAJOR>>,
        AsyncLoader<double, SIDE, Mma::BK, PRODUCERS, K_MAJOR, Layout, Mma::LANES_K>>;
    using LoadA = Loader<A_K_MAJOR, LayoutA>;
    using LoadB = Loader<B_K_MAJOR, LayoutB>;
    static constexpr int WARPS = CONSUMERS / 32;
    // Per thread. A launch gives a block what the kernel was compiled for, for all of its threads, and no more may be
    // asked for: one would wait for ever.
    static constexpr int PRODUCER_REGISTERS = 72, CONSUMER_REGISTERS = LARGE ? 216 : 184,
                         COMPILED_REGISTERS = 65536 / BLOCKS_PER_SM / THREADS / 8 * 8;
    static_assert(PRODUCERS * PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS <=
                  THREADS * COMPILED_REGISTERS);
    static constexpr int STAGE = A_SIZE + B_SIZE;
    // What a warp stores at once, and how it lies in shared memory.
    static constexpr int CHUNK_ROWS = 8, CHUNK_COLS = 16, CHUNK_PITCH = CHUNK_COLS + 2;
    static constexpr int WARP_SUMS = Mma::ACCS * 32;

    // So many steps of BK each of a piece, from k0 on. None: there is no more to do.
    struct Item {
        PartWork::Piece piece;
        int k0, steps;
        __device__ int i0() const { return piece.i * Mma::BM; }
        __device__ int j0() const { return piece.j * Mma::BN; }
    };
    struct Shared {
        alignas(16) double stages[STAGES][STAGE];
        alignas(16) double chunks[WARPS][CHUNK_ROWS * CHUNK_PITCH];
        Ring<STAGES> ring;
        Item begun[STAGES];  // That to which a stage belongs, where it is the first.
        Item next[2];
    };
    static constexpr int SHARED_BYTES = sizeof(Shared);
    static_assert(BLOCKS_PER_SM * (SHARED_BYTES + 1024) <= 228 * 1024, "");
};

// What warps do that load.
template <class Shape>
class PersistentProducer {
    using Item = typename Shape::Item;
    using Mma = typename Shape::Mma;

  public:
    __device__ PersistentProducer(const PersistentArgs& args, typename Shape::Shared& shared)
        : args_(args), shared_(shared), thread_(threadIdx.x - Shape::CONSUMERS) {}

    __device__ void run() {
        int step = 0;
        for (int number = 0;; ++number) {
            Item& next = shared_.next[number % 2];
            if (thread_ == 0) next = draw(number == 0);
            // The first item is known before anything is read, while the kernel before still runs.
            if (number == 0) ptx::wait_for_dependency();
            ptx::barrier_sync(1, Shape::PRODUCERS);
            const Item item = next;
            if (item.steps == 0) break;
            const ProductArgs<double>& p = args_.product;
            const Panel<double> a = at_batch(p.a, item.piece.matrix * p.a_batch_stride),
                                b = at_batch(p.b, item.piece.matrix * p.b_batch_stride);
            typename Shape::LoadA load_a(a, item.i0(), item.k0);
            typename Shape::LoadB load_b(b, item.j0(), item.k0);
#pragma unroll 1
            for (int s = 0; s < item.steps; ++s, ++step) {
                double* tiles = take_stage(step);
                if (s == 0) name(step, item);
                load(load_a, tiles, step);
                load(load_b, tiles + Shape::A_SIZE, step);
                fill(step);
            }
        }
        take_stage(step);
        name(step, Item{});
        fill(step);
    }

  private:
    template <class Loader>
    __device__ void load(Loader& loader, double* tile, int step) {
        if constexpr (Shape::LARGE) loader.next(tile, shared_.ring.full(step));
        else loader.next(tile);
    }
    __device__ double* take_stage(int step) {
        shared_.ring.wait_empty(step);
        return shared_.stages[step % Shape::STAGES];
    }
    __device__ void name(int step, const Item& item) {
        if (thread_ == 0) shared_.begun[step % Shape::STAGES] = item;
    }
    // Arrives when this thread's copies have landed; the first arrives for what it has written, too.
    __device__ void fill(int step) {
        ptx::cp_async_arrive(shared_.ring.full(step));
        if (thread_ == 0) ptx::mbarrier_arrive(shared_.ring.full(step));
    }

    __device__ Item draw(bool first) const {
        for (;;) {
            int number = static_cast<int>(blockIdx.x);
            if (!first) {
                ptx::wait_for_dependency();  // It makes the word zero.
                number = static_cast<int>(gridDim.x) + atomicAdd(args_.drawn, 1);
            }
            first = false;
            if (number >= args_.work.items) return Item{};
            const ProductArgs<double>& p = args_.product;
            Item item;
            const int all = (p.k + Mma::BK - 1) / Mma::BK;
            if (!args_.work.find(number, p.schedule, p.batch, p.a_kind, p.b_kind, all, item.piece))
                continue;
            item.steps = item.piece.end - item.piece.begin;
            item.k0 = item.piece.begin * Mma::BK;
            // An empty sum passes a stage all the same, of zeros past the end.
            if (item.steps == 0) {
                item.k0 = p.k;
                item.steps = 1;
            }
            return item;
        }
    }

    const PersistentArgs& args_;
    typename Shape::Shared& shared_;
    const int thread_;
};

// What warps do that multiply.
template <class Shape>
class PersistentConsumer {
    using Item = typename Shape::Item;
    using Mma = typename Shape::Mma;

  public:
    __device__ PersistentConsumer(const PersistentArgs& args, typename Shape::Shared& shared)
        : args_(args), p_(args.product), shared_(shared) {}

    __device__ void run() {
        for (int step = 0;;) {
            shared_.ring.wait_full(step);
            const Item item = shared_.begun[step % Shape::STAGES];
            if (item.steps == 0) return;
            Mma mma;
            multiply(mma, item, step);
            finish(mma, item);
        }
    }

  private:
    __device__ int warp() const { return threadIdx.x / 32; }
    __device__ int lane() const { return threadIdx.x % 32; }

    // What this warp needs of the sum: nothing past the edge of the result.
    __device__ BasicKRange<int> needed(const Mma& mma, const Item& item) const {
        const int i = item.i0() + mma.warp_row(), j = item.j0() + mma.warp_col();
        if (i >= p_.m || j >= p_.n) return {0, 0};
        return k_range<int>(p_.a_kind, p_.b_kind, i, i + Mma::WM, j, j + Mma::WN, p_.k);
    }

    // Lets `count` stages pass.
    __device__ void skip(int& step, int count) {
        for (const int end = step + count; step < end; ++step) {
            begin_step(step);
            end_step(step);
        }
    }

    // Stages pass that this warp does not need.
    __device__ void multiply(Mma& mma, const Item& item, int& step) {
        const BasicKRange<int> range = needed(mma, item);
        const int begin = min(item.steps, max(0, range.begin - item.k0) / Mma::BK),
                  end = max(begin, min(item.steps, (range.end - item.k0 + Mma::BK - 1) / Mma::BK));
        skip(step, begin);
        const int last = step + end - begin;
        if constexpr (Shape::LARGE) {
            const typename Mma::TileA::Lane in_a(lane(), mma.warp_row(),
                                                 flips(p_.a, p_.a_batch_stride, item));
            const typename Mma::TileB::Lane in_b(lane(), mma.warp_col(),
                                                 flips(p_.b, p_.b_batch_stride, item));
            for (; step < last; ++step) {
                const double* a = begin_step(step);
                mma.step(a, a + Shape::A_SIZE, in_a, in_b);
                end_step(step);
            }
        } else {
            for (; step < last; ++step) {
                const double* a = begin_step(step);
                mma.template step<typename Shape::LayoutA, typename Shape::LayoutB>(
                    a, a + Shape::A_SIZE, [](int) {});
                end_step(step);
            }
        }
        skip(step, item.steps - end);
    }
    // See LineTile.
    __device__ static bool flips(const Panel<double>& x, int64_t batch_stride, const Item& item) {
        return Shape::LoadA::flips(at_batch(x, item.piece.matrix * batch_stride));
    }
    __device__ const double* begin_step(int step) {
        shared_.ring.wait_full(step);
        return shared_.stages[step % Shape::STAGES];
    }
    __device__ void end_step(int step) {
        // Small tiles come without the copy engine.
        if (Shape::LARGE) shared_.ring.leave(step);
        else ptx::mbarrier_arrive(shared_.ring.empty(step));
    }

    __device__ void finish(Mma& mma, const Item& item) {
        if (p_.a_kind != Kind::Dense || p_.b_kind != Kind::Dense) mend(mma, item);
        if (item.piece.parts > 1 &&
            !add_parts<Shape::WARPS>(mma.acc, item.piece, warp(), args_.arrivals, args_.partial))
            return;
        store(mma, item);
    }

    __device__ void mend(Mma& mma, const Item& item) {
        bool bad = false;
#pragma unroll
        for (int e = 0; e < Mma::ACCS; ++e) bad |= !finite(mma.acc[e]);
        if (!__any_sync(~0u, bad)) return;
        double sums[Mma::ACCS];
        const BasicKRange<int> range = needed(mma, item);
        sum_again<Mma, Shape::a_k_major, Shape::b_k_major>(
            p_, item.piece.matrix, item.i0() + mma.warp_row(), item.j0() + mma.warp_col(),
            max(item.k0, range.begin), min(item.k0 + item.steps * Mma::BK, range.end), sums);
#pragma unroll
        for (int e = 0; e < Mma::ACCS; ++e) mma.acc[e] = sums[e];
    }

    // By chunks of 8 x 16 elements, which go through shared memory: the rows of a packed triangle are best written by
    // neighbouring lanes.
    __device__ void store(const Mma& mma, const Item& item) {
        constexpr int PITCH = Shape::CHUNK_PITCH, COLS = Shape::CHUNK_COLS,
                      ROWS = Shape::CHUNK_ROWS;
        double* chunk = shared_.chunks[warp()];
        double* to = chunk + Mma::row_of(lane() / 4) * PITCH + Mma::col_of(lane() % 4 * 2);
        const double* from = chunk + lane() / COLS * PITCH + lane() % COLS;
        double* c = p_.c + item.piece.matrix * p_.c_batch_stride;
        const int i0 = item.i0() + mma.warp_row() + lane() / COLS,
                  j0 = item.j0() + mma.warp_col() + lane() % COLS;
#pragma unroll
        for (int h = 0; h < 2 * Mma::MT; ++h) {
            double* out[ROWS / 2];
            int limit[ROWS / 2];
#pragma unroll
            for (int q = 0; q < ROWS / 2; ++q) {
                const int i = i0 + h * ROWS + 2 * q;
                out[q] = c + row_offset(i, p_.c_ld, p_.c_packed) + j0;
                limit[q] = i >= p_.m ? 0 : (p_.c_lower ? min(i + 1, p_.n) : p_.n) - j0;
            }
#pragma unroll
            for (int x = 0; x < Mma::WN; x += COLS) {
                const double* acc = mma.acc + (h / 2 * Mma::NT + x / 8) * 4 + h % 2 * 2;
                double there[ROWS / 2];
                if (p_.beta != 0)
#pragma unroll
                    for (int q = 0; q < ROWS / 2; ++q)
                        if (x < limit[q]) there[q] = out[q][x];
                put(to, acc);
                put(to + 8, acc + 4);
                __syncwarp();
#pragma unroll
                for (int q = 0; q < ROWS / 2; ++q) {
                    if (x >= limit[q]) continue;
                    double value = p_.alpha * from[2 * q * PITCH];
                    if (p_.beta != 0) value += p_.beta * there[q];
                    out[q][x] = value;
                }
                __syncwarp();
            }
        }
    }

    // Two sums that the tensor cores take for neighbours in a row.
    __device__ __forceinline__ static void put(double* to, const double* sums) {
        constexpr int NEXT = Mma::col_of(1) - Mma::col_of(0);
        if constexpr (NEXT == 1) {
            *reinterpret_cast<double2*>(to) = {sums[0], sums[1]};
        } else {
            to[0] = sums[0];
            to[NEXT] = sums[1];
        }
    }

    const PersistentArgs& args_;
    const ProductArgs<double>& p_;
    typename Shape::Shared& shared_;
};

template <class Shape>
__global__ void __launch_bounds__(Shape::THREADS, Shape::BLOCKS_PER_SM)
    persistent_kernel(const __grid_constant__ PersistentArgs args) {
#if PACKEDTRI_HOPPER
    extern __shared__ __align__(16) char memory[];
    auto& shared = *reinterpret_cast<typename Shape::Shared*>(memory);
    if (threadIdx.x == 0) {
        // They find no room on a multiprocessor that this kernel has, but are at hand.
        ptx::launch_dependents();
        shared.ring.start(Shape::PRODUCERS + 1, Shape::CONSUMERS);
    }
    __syncthreads();
    if (threadIdx.x >= Shape::CONSUMERS) {
        ptx::keep_registers<Shape::PRODUCER_REGISTERS>();
        PersistentProducer<Shape>(args, shared).run();
    } else {
        ptx::take_registers<Shape::CONSUMER_REGISTERS>();
        ptx::wait_for_dependency();
        PersistentConsumer<Shape>(args, shared).run();
    }
#endif
}

}  // namespace packedtri::cuda
