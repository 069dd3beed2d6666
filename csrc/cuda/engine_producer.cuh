// The thread that draws tiles and keeps the stages of a block filled.
#pragma once

#include "engine.cuh"

namespace packedtri::cuda {

template <class Shape, bool A_ACROSS, bool B_ACROSS>
class EngineProducer {
    using T = typename Shape::T;
    using Args = EngineArgs<T>;
    using Tile = typename Shape::template Tile<B_ACROSS>;

  public:
    __device__ EngineProducer(const Args& args, const EngineShared<Shape>& shared, int rank)
        : args_(args), shared_(shared), rank_(rank) {}

    __device__ void run() {
        int64_t word = rank_ == 0 ? first() : 0;
        for (int count = 0;; ++count) {
            if (Shape::CLUSTER > 1) word = agree(word, count);
            if (word == EngineItem::NONE) break;
            const EngineItem item = EngineItem::of(word);
            const Tile tile(args_.a.kind, args_.b.kind, args_.work, item, rank_, args_.n_blocks,
                            args_.k_blocks);
            int64_t next = EngineItem::NONE;
            const int last = tile.end() * Shape::HALVES - 1;
            for (int step = tile.k0 * Shape::HALVES; step <= last; ++step) {
                load(tile, step / Shape::HALVES, step % Shape::HALVES, word);
                // Drawn late, since who is done first shall have the next; the stages hide the wait.
                if (step == last && rank_ == 0) next = following();
            }
            if (item.share > 0) {  // Its parts meet in the stages.
                ptx::mbarrier_wait(shared_.parted(), meetings_.parity);
                meetings_.advance();
            }
            word = next;
        }
        begin_stage(EngineItem::NONE);
        ptx::mbarrier_arrive(shared_.full(at_.stage));
    }

  private:
    // Blocks that share sums have every so manieth shared tile. Then, or first, they start with one item
    // each, and draw the others.
    __device__ int sharers() const { return Shape::CLUSTER > 1 ? 1 : args_.work.split; }
    __device__ int group() const {
        return static_cast<int>(blockIdx.x) / (Shape::CLUSTER * sharers());
    }
    __device__ int groups() const {
        return static_cast<int>(gridDim.x) / (Shape::CLUSTER * sharers());
    }
    __device__ int64_t first() {
        shared_tile_ = group();
        if (shared_tile_ < args_.work.shared_tiles) return share();
        return take((shared_tile_ - args_.work.shared_tiles) * sharers() + part());
    }
    __device__ int64_t following() {
        return shared_tile_ < args_.work.shared_tiles ? share() : take(draw());
    }
    __device__ int part() const {
        return sharers() > 1 ? static_cast<int>(blockIdx.x) % sharers() : 0;
    }

    // This block's part of the next tile that it shares.
    __device__ int64_t share() {
        while (shared_tile_ < args_.work.shared_tiles) {
            bool exists = false;
            const EngineItem item = args_.work.shared(shared_tile_, part(), exists);
            shared_tile_ += groups();
            if (exists) return item.word();
        }
        return take(draw());
    }

    __device__ int draw() const {
        const int started = max(0, groups() - args_.work.shared_tiles) * sharers();
        return started + atomicAdd(args_.drawn, 1);
    }

    // The item of this number, or of a later one where the schedule has a gap.
    __device__ int64_t take(int number) const {
        for (; number < args_.work.size(); number = draw()) {
            bool exists = false;
            const EngineItem item = args_.work.alone(number, exists);
            if (exists) return item.word();
        }
        return EngineItem::NONE;
    }

    // Both blocks of a cluster work on what the first has drawn.
    __device__ int64_t agree(int64_t word, int count) {
        const int slot = count % Shape::DRAWS;
        const uint32_t barrier = shared_.drawn(slot);
        if (rank_ == 0) {
            ptx::store_peer(ptx::shared_address(const_cast<int64_t*>(shared_.draw(slot))), word,
                            barrier, 1);
            return word;
        }
        ptx::mbarrier_wait(barrier, count / Shape::DRAWS % 2);
        const int64_t drawn = *shared_.draw(slot);
        ptx::mbarrier_arrive_expect(barrier, sizeof(drawn));
        return drawn;
    }

    __device__ void begin_stage(int64_t word) {
        ptx::mbarrier_wait(shared_.empty(at_.stage), at_.parity ^ 1);
        *shared_.item(at_.stage) = word;
    }

    __device__ void load(const Tile& tile, int k, int half, int64_t word) {
        begin_stage(word);
        const int columns = Shape::COLS - tile.missing_columns(k);
        bool needed[Shape::ROWS];
        int blocks = columns;
#pragma unroll
        for (int r = 0; r < Shape::ROWS; ++r) {
            needed[r] = (tile.i0 + r) * Shape::SIDE < args_.m && tile.needs_row(r, k);
            blocks += needed[r];
        }
        ptx::mbarrier_arrive_expect(shared_.full(at_.stage),
                                    blocks * Shape::PARTS * Image::BLOCK_BYTES);
#pragma unroll
        for (int part = 0; part < Shape::PARTS; ++part) {
            const uint32_t a = shared_.a(at_.stage) + part * Shape::ROWS * Image::BLOCK_BYTES,
                           b = shared_.b(at_.stage) + part * Shape::COLS * Image::BLOCK_BYTES;
#pragma unroll
            for (int r = 0; r < Shape::ROWS; ++r)
                if (needed[r]) load_a(a + r * Image::BLOCK_BYTES, tile.i0 + r, k, half + part);
            load_b(b, tile, k, half + part, columns);
        }
        at_.advance();
    }

    // `part` is the image of several: a part of the elements, or a half of the blocks.
    __device__ void load_a(uint32_t to, int i, int k, int part) {
        const int row = A_ACROSS ? k : i, col = A_ACROSS ? i : k;
        const uint32_t full = shared_.full(at_.stage);
        if (args_.a.image)
            ptx::bulk_load(to, block(args_.a, row, col, part), Image::BLOCK_BYTES, full);
        else ptx::tensor_load(to, &args_.a_map, row * Image::SIDE, map_column(col, part), full);
    }

    // Each block of a cluster loads half of the columns for both.
    __device__ void load_b(uint32_t to, const Tile& tile, int k, int part, int columns) {
        constexpr int SHARE = Shape::COLS / Shape::CLUSTER;
        const int first = rank_ * SHARE, last = min(columns, first + SHARE);
        if (B_ACROSS && args_.b.image) {  // Blocks side by side are one piece of memory.
            if (first < last)
                copy_b(to + first * Image::BLOCK_BYTES, k, tile.j0 + first, part,
                       (last - first) * Image::BLOCK_BYTES);
            return;
        }
        for (int place = first; place < last; ++place) {
            const int j = tile.j0 + min(Tile::column_at(place), tile.columns - 1);
            copy_b(to + place * Image::BLOCK_BYTES, B_ACROSS ? k : j, B_ACROSS ? j : k, part,
                   Image::BLOCK_BYTES);
        }
    }

    __device__ void copy_b(uint32_t to, int row, int col, int part, int bytes) {
        const uint32_t full = shared_.full(at_.stage);
        constexpr uint16_t both = 3;
        if (args_.b.image) {
            const char* from = block(args_.b, row, col, part);
            if (Shape::CLUSTER > 1) ptx::bulk_load_multicast(to, from, bytes, full, both);
            else ptx::bulk_load(to, from, bytes, full);
        } else {
            const int r = row * Image::SIDE, c = map_column(col, part);
            if (Shape::CLUSTER > 1) ptx::tensor_load_multicast(to, &args_.b_map, r, c, full, both);
            else ptx::tensor_load(to, &args_.b_map, r, c, full);
        }
    }

    // The first column of a box of a mapped matrix: of a block, or of its half `part`.
    __device__ static int map_column(int col, int part) {
        return (col * Shape::HALVES + part) * (Image::SIDE / Shape::HALVES);
    }

    __device__ static const char* block(const EngineOperand& x, int row, int col, int part) {
        return x.image + part * x.part_bytes + x.layout.index(row, col) * Image::BLOCK_BYTES;
    }

    const Args& args_;
    const EngineShared<Shape> shared_;
    const int rank_;
    StageCounter<Shape::STAGES> at_;
    StageCounter<1> meetings_;
    int shared_tile_ = 0;  // The next of those that this block shares.
};

}  // namespace packedtri::cuda
