// The thread that draws tiles for the blocks of a cluster, so that the threads that fill their stages have each when the
// one before has been loaded: to draw and to find a tile takes as long as four steps of multiplying.
#pragma once

#include "engine.cuh"

namespace packedtri::cuda {

// One of the first block of a cluster, or of each block.
template <class Shape, int PRODUCTS>
class EngineDrawer {
    using T = typename Shape::T;
    using Args = EngineArgsOf<Shape, PRODUCTS>;

  public:
    // Where all other warps make images, the thread that fills the stages draws, and in TF32 where sums are cut, which is
    // faster then.
    static constexpr bool APART = !Shape::PACKS && !(Shape::SCALED && Shape::CUTS);
    // How many steps before the last of a tile the next one is asked for. Sooner, and who is done first would not have
    // the next one; later, and it would not be there in time.
    static constexpr int AHEAD = !APART ? 0 : Shape::CLUSTER > 1 ? 3 : 1;

    __device__ EngineDrawer(const Args& args, const EngineShared<Shape>& shared)
        : args_(args), shared_(shared) {}

    // Draws all items, each when it is wanted.
    __device__ void run() {
        for (bool more = draw_first(); more; more = draw_next())
            ptx::mbarrier_wait(shared_.wanted(), (drawn_ - 1) % 2);
    }
    __device__ bool draw_first() { return send(first()); }
    __device__ bool draw_next() {
        return send(shared_tile_ < args_.shared.all ? share() : take(draw()));
    }

  private:
    // To the threads that fill the stages. Returns whether it is an item.
    __device__ bool send(int64_t word) {
        const int slot = drawn_++ % Shape::DRAWS;
        const uint32_t barrier = shared_.drawn(slot);
        if (Shape::CLUSTER > 1) {
            const uint32_t there = ptx::shared_address(const_cast<int64_t*>(shared_.draw(slot)));
            ptx::store_peer(ptx::peer_address(there, 1), word, ptx::peer_address(barrier, 1));
        }
        *shared_.draw(slot) = word;
        ptx::mbarrier_arrive(barrier);
        return word != EngineItem::NONE;
    }

    // Blocks that share sums have every so manieth shared tile. Then, or first, they start with one item
    // each, and draw the others.
    __device__ int sharers() const { return Shape::CLUSTER > 1 ? 1 : args_.split; }
    __device__ int group() const {
        return static_cast<int>(blockIdx.x) / (Shape::CLUSTER * sharers());
    }
    __device__ int groups() const {
        return static_cast<int>(gridDim.x) / (Shape::CLUSTER * sharers());
    }
    __device__ int part() const {
        return sharers() > 1 ? static_cast<int>(blockIdx.x) % sharers() : 0;
    }
    __device__ int64_t first() {
        shared_tile_ = group();
        if (shared_tile_ < args_.shared.all) return share();
        return take((shared_tile_ - args_.shared.all) * sharers() + part());
    }

    // This block's part of the next tile that it shares.
    __device__ int64_t share() {
        while (shared_tile_ < args_.shared.all) {
            const auto [matrix, number] = args_.shared.at(shared_tile_);
            bool exists = false;
            EngineItem item = work_of(number).shared(tile_of(number), part(), exists);
            item.product = product_of(number);
            item.matrix = matrix;
            shared_tile_ += groups();
            if (exists) return item.word();
        }
        return take(draw());
    }

    __device__ int draw() {
        // The counter is made zero by the kernel before.
        if (!started_) ptx::wait_for_dependency();
        started_ = true;
        const int started = max(0, groups() - args_.shared.all) * sharers();
        return started + atomicAdd(args_.counters + EngineCounters::ITEMS, 1);
    }

    // The item of this number, or of a later one where there is none.
    __device__ int64_t take(int drawn) {
        if constexpr (Shape::CUTS) {
            const EngineProduct<T>& p = args_.of[0];
            EnginePiece item;
            for (; drawn < args_.cutting.work.items; drawn = draw())
                if (args_.cutting.work.find(drawn, p.work.schedule, 1, p.a.kind, p.b.kind,
                                            p.k_blocks, item.piece))
                    return item.word();
        } else {
            for (; drawn < args_.alone.all; drawn = draw()) {
                const auto [matrix, number] = args_.alone.at(drawn);
                bool exists = false;
                EngineItem item = work_of(number).alone(tile_of(number), exists);
                item.product = product_of(number);
                item.matrix = matrix;
                if (exists) return item.word();
            }
        }
        return EngineItem::NONE;
    }

    __device__ int product_of(int number) const { return PRODUCTS > 1 ? number & 1 : 0; }
    __device__ int tile_of(int number) const { return PRODUCTS > 1 ? number >> 1 : number; }
    __device__ const EngineWork& work_of(int number) const {
        return args_.of[product_of(number)].work;
    }

    const Args& args_;
    const EngineShared<Shape> shared_;
    int drawn_ = 0;
    int shared_tile_ = 0;  // The next of those that this block shares.
    bool started_ = false;
};

}  // namespace packedtri::cuda
