// A thread that keeps the stages of a block filled, tile after tile, with both operands or with one of them.
#pragma once

#include "engine_drawer.cuh"

namespace packedtri::cuda {

// TURNS: whether rows of memory may turn (Run). LOADS_A, LOADS_B: which operands it loads. Who loads A also asks for tiles,
// and tells those that multiply of them.
template <class Shape, int PRODUCTS, bool TURNS, bool LOADS_A = true, bool LOADS_B = true>
class EngineProducer {
    using T = typename Shape::T;
    using Args = EngineArgsOf<Shape, PRODUCTS>;
    using Tile = typename Shape::Tile;
    using Item = typename Shape::Item;
    using Drawer = EngineDrawer<Shape, PRODUCTS>;

  public:
    __device__ EngineProducer(const Args& args, const EngineShared<Shape>& shared, int rank)
        : args_(args), shared_(shared), rank_(rank), drawer_(args, shared) {}

    __device__ void run() {
        prefetch_maps();
        int count = 0;
        for (int64_t word = first(count); word != EngineItem::NONE; word = drawn(count++)) {
            const Item named = Item::of(word);
            const EngineProduct<T>& p = args_.of[PRODUCTS > 1 ? named.product : 0];
            const Item item = p.placed(named);
            const Tile tile(p.a.run, p.b.run, p.work, item, rank_, p.n_blocks, p.k_blocks);
            load_all(p, tile, item.matrix, word);
            if constexpr (!Shape::CUTS && !Shape::MEETS_APART) parts_meet_ = item.share > 0;
        }
        // No block ends before the kernel before does: later ones rely on that.
        wait_for_stages(true);
        begin_stage(EngineItem::NONE);
        ptx::mbarrier_arrive(shared_.full(at_.stage));
    }

  private:
    // `count`: how many have been drawn then.
    __device__ int64_t first(int& count) {
        if constexpr (!Shape::PACKS) return Drawer::dealt(args_);
        if (rank_ == 0) drawer_.draw_first();
        return drawn(count++);
    }

    __device__ void prefetch_maps() const {
#pragma unroll
        for (int x = 0; x < PRODUCTS; ++x) {
            if (!args_.of[x].a.image) ptx::prefetch_map(&args_.of[x].a_map);
            if (!args_.of[x].b.image) ptx::prefetch_map(&args_.of[x].b_map);
        }
        if constexpr (Args::STORES) {
            if (args_.storing.wanted) ptx::prefetch_map(&args_.storing.map);
        }
    }

    // Before the first load of a tile, when all is ready for it: until there is something to read, and
    // until the parts of the sum before have met, which they do in the stages. What no image is made of was there before
    // the kernel that makes images let this one start.
    __device__ void wait_for_stages(bool reads_images) {
        if (reads_images && !started_) {
            ptx::wait_for_dependency();
            started_ = true;
        }
        if (!parts_meet_) return;
        ptx::mbarrier_wait(shared_.parted(), meetings_.parity);
        meetings_.advance();
        parts_meet_ = false;
    }

    // The item that has been drawn after so many others, for this block or for both of its cluster.
    __device__ int64_t drawn(int count) {
        const int slot = count % Shape::DRAWS;
        const uint32_t barrier = shared_.drawn(slot);
        ptx::mbarrier_wait(barrier, count / Shape::DRAWS % 2);
        const int64_t word = *shared_.draw(slot);
        if (rank_ > 0) ptx::mbarrier_arrive_expect(barrier, sizeof(word));
        return word;
    }

    __device__ void begin_stage(int64_t word) {
        ptx::mbarrier_wait(shared_.empty(at_.stage), at_.parity ^ 1);
        if (LOADS_A) *shared_.item(at_.stage) = word;
    }

    // The blocks that an operand has at one k, of two neighbouring lines: rows of A, columns of B. The
    // warps that multiply wait for a single thread, which has no time to find each from its indices.
    struct Stream {
        const CUtensorMap* map;
        const char* at;  // The image of the first line's block; null where the matrix is mapped.
        int64_t part_bytes;
        // In blocks: to the block at the next k, what that grows by, and from the first line's block to
        // the second's. In a mapped matrix the last is from line to line.
        int step, bend, second;
        int line;               // The first.
        int matrix, of_second;  // Of the map, and that of the other line.
        bool across;
        // Where rows of memory may turn: the image, at which step, and which step is next.
        const Grid& blocks;
        const char* image;
        int turn, k;

        // `joined`: how many lines each matrix has, if those of all are joined.
        __device__ Stream(const EngineOperand& x, const CUtensorMap& map, int matrix, int line,
                          int other, int k, int turn, int joined = 0)
            : map(&map), at(x.image), part_bytes(x.part_bytes), step(0), bend(0),
              across(TURNS ? k >= turn : x.run.across), blocks(x.blocks), turn(turn), k(k) {
            int beyond = 0;  // How many matrices further the other line is.
            if (joined > 0) {
                matrix = line / joined;
                beyond = other / joined - matrix;
                line -= matrix * joined;
                other -= (matrix + beyond) * joined;
            }
            this->line = line;
            second = other - line;
            this->matrix = matrix * static_cast<int>(x.next);
            of_second = this->matrix + beyond;
            if (!at) return;
            image = at + matrix * x.next;
            begin(other, beyond, x.next);
        }
        // At step k of this line and another one, so many images `beyond` this one's.
        __device__ __forceinline__ void begin(int other, int beyond = 0, int64_t next = 0) {
            const auto index = [&](int line) {
                return across ? blocks.template index<int64_t, TURNS>(k, line)
                              : blocks.template index<int64_t, TURNS>(line, k);
            };
            at = image + index(line) * Image::BLOCK_BYTES;
            second =
                static_cast<int>(index(other) - index(line) + beyond * (next / Image::BLOCK_BYTES));
            step = !across ? 1 : blocks.packed ? blocks.template end_of<TURNS>(k) : blocks.cols;
            bend = !across || !blocks.packed ? 0 : TURNS ? 1 << blocks.large : 1;
        }
        __device__ void advance() {
            at += int64_t{step} * Image::BLOCK_BYTES;
            if constexpr (!TURNS) {
                step += bend;
                return;
            }
            ++k;
            if (k == turn) {
                // Along, lines are apart by the blocks of a row of the large square, all as long.
                across = true;
                begin(line + second / blocks.end_of(line));
            } else if ((k & ((1 << blocks.large) - 1)) == 0) {
                step += bend;
            }
        }
        // Image `part` of the block of either line.
        __device__ const char* block(int part, bool other) const {
            return at + part * part_bytes + (other ? int64_t{second} * Image::BLOCK_BYTES : 0);
        }
        // The box of a mapped matrix that the block is.
        __device__ int box_row(int k, bool other) const {
            return (across ? k : line + (other ? second : 0)) * Image::SIDE;
        }
        __device__ int box_column(int k, bool other) const {
            return (across ? line + (other ? second : 0) : k) * Image::SIDE;
        }
    };

    // Until the pieces of images are made that the step at k reads. To see that takes a microsecond, so those
    // of later steps are looked at too.
    __device__ void wait_for_images(const EngineProduct<T>& p, const Tile& tile,
                                    const EngineItem& item, int k) {
        constexpr int AHEAD = 6, PIECE = PackOrder::SIDE, UNITS = PackOrder::UNITS;
        static_assert(PIECE == Shape::COLS && PIECE == Shape::ROWS * Shape::CLUSTER,
                      "pieces are as large as tiles");
        if (k == tile.k0) made_until_ = k;
        if (all_made_ || k < made_until_ || k >= tile.k1) return;
        const int first = k / PIECE, last = (tile.k1 - 1) / PIECE;
        int made;
        do {
            // All loads are on their way together: none is branched around, or waited for before the last.
            int of_a[AHEAD], of_b[AHEAD];
#pragma unroll
            for (int x = 0; x < AHEAD; ++x) {
                const int k_piece = min(first + x, last);
                of_a[x] = units_made(p.a, item.i, k_piece);
                of_b[x] = units_made(p.b, item.j, k_piece);
            }
            const int done = ptx::load_relaxed(args_.packing.work.done);
            made = 0;
#pragma unroll
            for (int x = 0; x < AHEAD; ++x)
                made += made == x && of_a[x] >= UNITS && of_b[x] >= UNITS;
            all_made_ = done >= static_cast<int>(gridDim.x) * Shape::PACKERS;
        } while (made == 0);
        ptx::acquire();
        ptx::bulk_fence_global();
        made_until_ = (first + made) * PIECE;
    }
    // Of the piece that an operand has in a line of tiles; all, where it has none or none that is being made.
    __device__ int units_made(const EngineOperand& x, int line, int k) const {
        const int row = x.run.across ? k : line, col = x.run.across ? line : k;
        const Grid pieces = PackOrder::pieces_of(x.blocks);
        const bool wanted = x.ready && pieces.has(row, col);
        const int units = ptx::load_relaxed(wanted ? x.ready + pieces.template index<int>(row, col)
                                                   : args_.packing.work.done);
        return wanted ? units : PackOrder::UNITS;
    }

    // Loads all steps of a tile.
    __device__ void load_all(const EngineProduct<T>& p, const Tile& tile, int matrix,
                             int64_t word) {
        static_assert(Shape::ROWS <= 2 && Shape::COLS / Shape::CLUSTER == 2, "two lines at most");
        // Each block of a cluster loads two of the columns for both.
        const int place = 2 * rank_;
        const auto column = [&](int place) {
            return tile.j0 + min(Tile::column_at(place, tile.ascending), tile.columns - 1);
        };
        Stream a(p.a, p.a_map, matrix, tile.i0, tile.i0 + Shape::ROWS - 1, tile.k0, tile.a_turn),
            b(p.b, p.b_map, matrix, column(place), column(place + 1), tile.k0, tile.b_turn,
              p.joined_blocks());
        const int rows = min(Shape::ROWS, p.m_blocks() - tile.i0);
        const KRange whole = tile.whole(rows);
        const int end = tile.end(), ask_at = max(tile.k0, end - 1 - Drawer::AHEAD);
        wait_for_stages((LOADS_A && a.at) || (LOADS_B && b.at));
        for (int k = tile.k0; k < end; ++k) {
            if constexpr (Shape::PACKS) wait_for_images(p, tile, EngineItem::of(word), k);
            const bool all = k >= whole.begin && k < whole.end;
            const bool first = all || (rows > 0 && tile.needs_row(0, k)),
                       second = Shape::ROWS > 1 && (all || (rows > 1 && tile.needs_row(1, k)));
            const int columns = all ? Shape::COLS : Shape::COLS - tile.missing_columns(k);
            const int blocks = (LOADS_A ? first + second : 0) + (LOADS_B ? columns : 0);
            begin_stage(word);
            ptx::mbarrier_arrive_expect(shared_.full(at_.stage),
                                        blocks * Shape::PARTS * Image::BLOCK_BYTES);
            load(a, b, k, first, second, columns - place);
            at_.advance();
            a.advance();
            b.advance();
            if (LOADS_A && k == ask_at && rank_ == 0) ask();
        }
    }

    // For the next item.
    __device__ void ask() {
        if constexpr (Drawer::APART) ptx::mbarrier_arrive(shared_.wanted());
        else drawer_.draw_next();
    }

    // Loads a stage: which rows of A are needed, and how many columns of B from this block's on.
    __device__ __forceinline__ void load(const Stream& a, const Stream& b, int k, bool first,
                                         bool second, int columns) const {
        const uint32_t full = shared_.full(at_.stage);
        constexpr int BYTES = Image::BLOCK_BYTES;
#pragma unroll
        for (int part = 0; part < Shape::PARTS; ++part) {
            const uint32_t to_a = shared_.a(at_.stage) + part * Shape::ROWS * BYTES,
                           to_b = shared_.b(at_.stage) + (part * Shape::COLS + 2 * rank_) * BYTES;
            if (!LOADS_A) {
            } else if (a.at) {
                if (first) ptx::bulk_load(to_a, a.block(part, false), BYTES, full);
                if (second) ptx::bulk_load(to_a + BYTES, a.block(part, true), BYTES, full);
            } else {
                if (first)
                    ptx::tensor_load(to_a, a.map, a.matrix, a.box_row(k, false),
                                     a.box_column(k, false), full);
                if (second)
                    ptx::tensor_load(to_a + BYTES, a.map, a.matrix, a.box_row(k, true),
                                     a.box_column(k, true), full);
            }
            if (!LOADS_B || columns <= 0) continue;
            // Blocks side by side are one piece of memory.
            if (b.at && b.across && (columns == 1 || b.second == 1)) {
                copy_b(to_b, b.block(part, false), columns > 1 ? 2 * BYTES : BYTES, full);
            } else if (b.at) {
                copy_b(to_b, b.block(part, false), BYTES, full);
                if (columns > 1) copy_b(to_b + BYTES, b.block(part, true), BYTES, full);
            } else {
                copy_box(to_b, b, b.matrix, b.box_row(k, false), b.box_column(k, false), full);
                if (columns > 1)
                    copy_box(to_b + BYTES, b, b.of_second, b.box_row(k, true),
                             b.box_column(k, true), full);
            }
        }
    }

    // To both blocks of a cluster.
    static constexpr uint16_t BOTH = 3;
    __device__ static void copy_b(uint32_t to, const char* from, int bytes, uint32_t full) {
        if (Shape::CLUSTER > 1) ptx::bulk_load_multicast(to, from, bytes, full, BOTH);
        else ptx::bulk_load(to, from, bytes, full);
    }
    __device__ static void copy_box(uint32_t to, const Stream& b, int matrix, int row, int col,
                                    uint32_t full) {
        if (Shape::CLUSTER > 1) ptx::tensor_load_multicast(to, b.map, matrix, row, col, full, BOTH);
        else ptx::tensor_load(to, b.map, matrix, row, col, full);
    }

    const Args& args_;
    const EngineShared<Shape> shared_;
    const int rank_;
    Drawer drawer_;  // Unless it is apart.
    StageCounter<Shape::STAGES> at_;
    StageCounter<1> meetings_;
    bool started_ = false, parts_meet_ = false;
    bool all_made_ = false;  // All images.
    int made_until_ = 0;     // What this tile reads of them, up to this step.
};

}  // namespace packedtri::cuda
