// Square tiles that the blocks of one launch work on, each waiting for those of others that it needs.
#pragma once

#include <algorithm>

#include "blocks.h"
#include "hopper.cuh"
#include "kernels.h"
#include "leaf.cuh"
#include "mma_f64.cuh"
#include "mma_simt.cuh"

namespace packedtri::cuda {

constexpr int PANEL_TILE = 64, PANEL_PITCH = SharedTriangle<float>::pitch_of(PANEL_TILE);
// Elements of a tile as it lies in shared memory, by columns, and in an image, from where others copy it.
constexpr int PANEL_IMAGE = PANEL_TILE * PANEL_PITCH;

// What multiplies tiles: by steps of STEP columns, 4 x 2 warps of 16 x 32 elements or 2 x 2 of 32 x 32.
template <class T>
struct PanelMultiplier {
    using type = MmaSimt<T, PANEL_TILE, PANEL_TILE, STEP, sizeof(T) <= 8 ? 8 : 4, 4>;
};
template <>
struct PanelMultiplier<double> {
    using type = MmaF64<PANEL_TILE, PANEL_TILE, STEP, 32, 32>;
};

// The work of a block. Items are drawn one after another, and an item waits only for items that were drawn before, so
// that the first one of all that are not finished never waits.
template <class T>
class PanelTiles {
    static constexpr int HALF = PANEL_TILE / 2, STAGE = 2 * HALF * PANEL_PITCH;

  public:
    using Sums = typename PanelMultiplier<T>::type;
    static constexpr int THREADS = Sums::THREADS;
    static constexpr int SHARED_BYTES = (2 * STAGE + PANEL_IMAGE) * static_cast<int>(sizeof(T));

  protected:
    static constexpr int WORD = 16 / sizeof(T);
    struct alignas(16) Word {
        T x[WORD];
    };
    // A tile that is waited for: `ready` is not 0 once the image is finished.
    struct Image {
        T* data;
        int* ready;
    };

    __device__ PanelTiles(T* shared, bool& next_is_ready)
        : stages_(shared), x_{shared + 2 * STAGE, PANEL_PITCH}, next_is_ready_(next_is_ready) {}

    // A tile in the place of the stages, where there are no products under way.
    __device__ SharedTriangle<T> second() const { return {stages_, PANEL_PITCH}; }

    // sums += Q P^H of `count` pairs of tiles, P = p(k) and Q = q(k), which have been announced or will be. also(p) is
    // called for each half of P. The second half of tiles is copied while the first is multiplied, and the first of the
    // next ones while the second is, if they were ready before that. With sums(c, r) on behalf of element (r, c).
    template <class P, class Q, class Also>
    __device__ void add_tiles(Sums& sums, int count, P p, Q q, Also also) {
        await(p(0));
        await(q(0));
        copy_half(p(0), q(0), 0);
        for (int half = 0; half < 2 * count; ++half) {
            const int next = half + 1, k = next / 2;
            const bool more = next < 2 * count, early = more && (next % 2 == 1 || next_is_ready_);
            if (early) {
                copy_half(p(k), q(k), next);
                ptx::cp_async_wait<1>();
            } else {
                ptx::cp_async_wait<0>();
            }
            __syncthreads();
            int ready = 0;
            if (threadIdx.x == 0 && next % 2 == 1 && k + 1 < count)
                ready = ptx::load_relaxed(p(k + 1).ready) & ptx::load_relaxed(q(k + 1).ready);
            const T* const left = stages_ + half % 2 * STAGE;
            add_product<HALF>(sums, left, left + HALF * PANEL_PITCH);
            also(left);
            if (threadIdx.x == 0) {
                if (ready) ptx::acquire();
                next_is_ready_ = ready != 0;
            }
            __syncthreads();
            if (more && !early) {
                await(p(k));
                await(q(k));
                copy_half(p(k), q(k), next);
            }
        }
    }

    // sums += Q P^H, of DEPTH columns: the transposed product, of which a lane has neighbours in a column.
    template <int DEPTH>
    __device__ static void add_product(Sums& sums, const T* p, const T* q) {
        using Layout = TileLayout<PANEL_TILE, STEP, false, PANEL_PITCH - PANEL_TILE>;
#pragma unroll 1
        for (int k = 0; k < DEPTH; k += STEP)
            sums.template step<Layout, Layout>(q + k * PANEL_PITCH, p + k * PANEL_PITCH,
                                               [](int) {});
    }
    // Of a product with itself the lower half is needed.
    template <int DEPTH>
    __device__ static void add_square(Sums& sums, const T* p) {
        if (sums.warp_col() + Sums::WN > sums.warp_row()) add_product<DEPTH>(sums, p, p);
    }

    // Calls f(row, column, sums) for neighbours in a column that fill a word.
    template <class F>
    __device__ static void for_words(Sums& sums, F f) {
#pragma unroll
        for (int e = 0; e < Sums::ACCS; e += WORD)
            f(sums.col0 + Sums::col_of_acc(e), sums.row0 + Sums::row_of_acc(e), sums.acc + e);
    }
    __device__ static Word& word_at(const SharedTriangle<T>& a, int r, int c) {
        return reinterpret_cast<Word&>(a.at(r, c));
    }

    // Waits for a tile and copies it to second(); all threads have met when it is there.
    __device__ void fetch(const Image& image) const {
        await(image);
        copy_words(ptx::shared_address(stages_), image.data, PANEL_IMAGE);
        ptx::cp_async_commit();
        ptx::cp_async_wait<0>();
        __syncthreads();
    }

    __device__ static void write(const SharedTriangle<T>& from, const Image& to,
                                 bool conj = false) {
        Word* const words = reinterpret_cast<Word*>(to.data);
#pragma unroll 4
        for (int w = threadIdx.x; w < PANEL_IMAGE / WORD; w += THREADS) {
            Word word = reinterpret_cast<const Word*>(from.data)[w];
#pragma unroll
            for (T& x : word.x) x = conjugate_if(x, conj);
            words[w] = word;
        }
    }

    // For all threads: one of them looks.
    __device__ static void await(const Image& image) {
        if (threadIdx.x == 0)
            while (ptx::load_acquire(image.ready) == 0) {
            }
        __syncthreads();
    }
    // When all threads have written the image and met. That takes time, which the warp has that add_square leaves out.
    __device__ static void announce(const Image& image) {
        if (threadIdx.x == THREADS / 4) ptx::release_increment(image.ready);
    }

    const SharedTriangle<T> x_;  // The tile that the block works on.

  private:
    __device__ void copy_half(const Image& p, const Image& q, int half) const {
        constexpr int COUNT = HALF * PANEL_PITCH;
        const uint32_t to = ptx::shared_address(stages_ + half % 2 * STAGE);
        copy_words(to, p.data + half % 2 * COUNT, COUNT);
        copy_words(to + COUNT * sizeof(T), q.data + half % 2 * COUNT, COUNT);
        ptx::cp_async_commit();
    }

    __device__ static void copy_words(uint32_t to, const T* from, int elements) {
        const int words = elements / WORD;
#pragma unroll 4
        for (int w = threadIdx.x; w < words; w += THREADS)
            ptx::cp_async_past_l1(to + w * 16, reinterpret_cast<const uint4*>(from) + w);
    }

    T* const stages_;      // Two, of half a tile of each operand.
    bool& next_is_ready_;  // In shared memory.
};

// Work draws its items from args.ticket, args.items() in all. Without a least number of blocks the compiler would spare
// registers for more of them than have room.
template <class Work>
__global__ void __launch_bounds__(Work::THREADS, 1)
    panel_kernel(const __grid_constant__ typename Work::Args args) {
    extern __shared__ __align__(16) char shared[];
    __shared__ int drawn;
    __shared__ bool next_is_ready;
    start_leaf();
    Work work(args, shared, next_is_ready);
    const int64_t items = args.items();
    while (true) {
        if (threadIdx.x == 0) drawn = atomicAdd(args.ticket, 1);
        __syncthreads();
        const int item = drawn;
        if (item >= items) return;
        work.run(item);
        __syncthreads();
    }
}

// Whether a block of the device has room for tiles of the work.
template <class Work>
bool panel_fits() {
    return Work::SHARED_BYTES <= current_device().shared_kib * 1024;
}

template <class T>
constexpr int64_t panel_image_bytes(int64_t tiles) {
    return tiles * PANEL_IMAGE * static_cast<int64_t>(sizeof(T));
}

// Takes scratch memory for the images and words of so many tiles. False where there is none.
template <class T, class Args>
bool reserve_images(Args& args, int64_t tiles, Scratch& scratch) {
    const int64_t images = panel_image_bytes<T>(tiles),
                  words = (tiles + 1) * static_cast<int64_t>(sizeof(int));
    char* const memory = static_cast<char*>(scratch.reserve_if_free(images + words));
    if (!memory) return false;
    args.images = reinterpret_cast<T*>(memory);
    args.ticket = reinterpret_cast<int*>(memory + images);
    args.ready = args.ticket + 1;
    return true;
}

// Where images have been reserved for so many tiles.
template <class Work>
void launch_panel(const typename Work::Args& args, int64_t tiles, cudaStream_t stream) {
    check(cudaMemsetAsync(args.ticket, 0, static_cast<size_t>(tiles + 1) * sizeof(int), stream),
          "cannot clear the words of a panel");
    const Device& device = current_device();
    const int64_t blocks =
        device.multiprocessors * panel_blocks(args.batch, args.items(), device, Work::SHARED_BYTES);
    launch_leaf(panel_kernel<Work>, std::min(args.items(), blocks), Work::THREADS,
                Work::SHARED_BYTES, args, stream);
}

}  // namespace packedtri::cuda
