#include "engine.h"

#include <algorithm>

#include "engine_plan.h"
#include "image_pack.h"
#include "launch.h"
#include "tensor_map.h"

namespace packedtri::cuda {
namespace {

// Images of a batch take no more scratch memory at a time, unless those of one matrix do.
constexpr int64_t BATCH_SCRATCH = int64_t{256} << 20;

// Matrix `batch` of an operand or result.
void* matrix(const void* data, int64_t batch, int64_t batch_stride, DType dtype) {
    const char* start = static_cast<const char*>(data);
    return const_cast<char*>(start + batch * batch_stride * element_size(dtype));
}

static_assert(2 * MOST_ENGINE_TASKS <= MOST_IMAGES, "each operand may need one");

// The images of all operands of some products, each once.
struct Images {
    struct Place {
        Operand operand;
        EngineSource source;
        char* at;
    };
    Place places[MOST_IMAGES];
    int count = 0;
    int64_t together;  // Matrices that have theirs at once.
    uintptr_t free;    // Where the next one goes.

    // Which image an operand is read from.
    int place(const Operand& x, const EngineSource& source) {
        if (source.mapped) return ImageUse::NONE;
        for (int i = 0; i < count; ++i)
            if (same_image(x, places[i].operand) &&
                source.blocks.large == places[i].source.blocks.large)
                return i;
        places[count] = {x, source, reinterpret_cast<char*>(free)};
        free += static_cast<uintptr_t>(source.scratch_bytes(together));
        return count++;
    }
    const char* at(int image) const { return image == ImageUse::NONE ? nullptr : places[image].at; }

    // Whether the matrices from `first` on have not got an image in common with those before.
    bool needed(int image, int64_t first) const { return first == 0 || !places[image].source.same; }
    ImageRequest request(int image, int64_t first, int64_t matrices, DType dtype) const {
        const auto& [x, source, at] = places[image];
        Operand from = x;
        from.data = matrix(x.data, first, x.batch_stride, dtype);
        return {from,         source.blocks,
                at,           source.part_bytes,
                source.bytes, source.same ? 1 : static_cast<int>(matrices)};
    }
};

// How many words count what is made of the pieces of an image.
int64_t piece_words(const Grid& blocks) { return PackOrder::pieces_of(blocks).count(); }

// Plans products whose scratch memory begins at `scratch`: the words that must be zero, then the images.
class Plans {
  public:
    Plans(const EngineTask* tasks, int count, uintptr_t scratch) : tasks_(tasks), count_(count) {
        for (int t = 0; t < count; ++t) {
            EnginePlan& plan = of_[t];
            plan.product = tasks[t].product;
            plan.config = tasks[t].config;
            plan.layout =
                engine_layout(plan.product, plan.config, current_device().multiprocessors);
            if (count > 1 && (plan.layout.a.run.turns || plan.layout.b.run.turns))
                throw std::logic_error("[packedtri] pairs of products are of triangles");
        }
        together_ = matrices_together();
        images_.together = together_;
        images_.free = scratch;
        for (int t = 0; t < count; ++t) {
            EnginePlan& plan = of_[t];
            plan.counters = reinterpret_cast<int*>(images_.free);
            int* rest = plan.counters + EngineCounters::COUNT;
            if (plan.layout.marks > 0) plan.marks = rest;
            if (plan.layout.lines > 0) plan.lines = rest + together_ * plan.layout.marks;
            plan.part_words = rest + together_ * (plan.layout.marks + plan.layout.lines);
            images_.free += static_cast<uintptr_t>(plan.layout.control_bytes(together_));
        }
        unmade_.work.drawn = reinterpret_cast<int*>(images_.free);
        unmade_.work.done = reinterpret_cast<int*>(images_.free + sizeof(int));
        unmade_.work.ready[0] = reinterpret_cast<int*>(images_.free + 2 * sizeof(int));
        for (int t = 0; t < count; ++t)
            images_.free += static_cast<uintptr_t>(unmade_bytes(of_[t]));
        words_ = static_cast<int>((images_.free - scratch) / sizeof(int));
        for (int t = 0; t < count; ++t) {
            of_[t].part_sums = reinterpret_cast<float*>(images_.free);
            images_.free += static_cast<uintptr_t>(of_[t].layout.part_bytes());
        }
        for (int t = 0; t < count; ++t) {
            EnginePlan& plan = of_[t];
            const Product& p = plan.product;
            uses_[t][0] = {images_.place(p.a, plan.layout.a), plan.layout.a.run.across};
            uses_[t][1] = {images_.place(p.b, plan.layout.b), plan.layout.b.run.across};
            plan.a_image = images_.at(uses_[t][0].image);
            plan.b_image = images_.at(uses_[t][1].image);
        }
    }

    uintptr_t end() const { return images_.free; }
    int64_t together() const { return together_; }

    // Computes the products of matrices of the batch from `first` on.
    void run(int64_t first, cudaStream_t stream) {
        const DType dtype = tasks_[0].product.dtype;
        const int64_t matrices = std::min(together_, tasks_[0].product.batch - first);
        for (int t = 0; t < count_; ++t) {
            const Product& p = tasks_[t].product;
            Product& part = of_[t].product;
            part = p;
            part.batch = matrices;
            part.a.data = matrix(p.a.data, first, p.a.batch_stride, dtype);
            part.b.data = matrix(p.b.data, first, p.b.batch_stride, dtype);
            part.c.data = matrix(p.c.data, first, p.c.batch_stride, dtype);
            if (of_[t].layout.a.mapped) of_[t].a_map = map_of(part.a, dtype, matrices);
            if (of_[t].layout.b.mapped) of_[t].b_map = map_of(part.b, dtype, matrices);
            if (stores_boxes(part)) {
                of_[t].c_mapped = true;
                of_[t].c_map = map_of(result_of(part), dtype, matrices,
                                      EngineLayout::box_rows(of_[t].config.split));
            }
            if (of_[t].config.joined) join(of_[t]);
        }
        make_images(first, matrices, stream);
        if (dtype == DType::f16) engine_f16(of_, count_, unmade_, stream);
        else if (dtype == DType::bf16) engine_bf16(of_, count_, unmade_, stream);
        else if (of_[0].product.tf32) engine_tf32(of_, count_, unmade_, stream);
        else engine_f32(of_, count_, unmade_, stream);
    }

  private:
    static Operand result_of(const Product& p) {
        return {p.c.data, Kind::Dense, p.m, p.n, p.c.row_stride, 1, p.c.batch_stride};
    }

    static void join(EnginePlan& plan) {
        Product& part = plan.product;
        const EngineLayout all =
            engine_layout(joined(part), plan.config, current_device().multiprocessors);
        plan.layout.work = all.work;
        plan.layout.panels = all.panels;
        plan.layout.panel_count = all.panel_count;
        part.n *= part.batch;
        part.batch = 1;
    }

    // How many matrices of the batch are computed at once: all, unless that takes much memory, or their
    // images are made on the way.
    int64_t matrices_together() const {
        int64_t first = 0, next = 0;  // What the first matrix takes, and each of the others.
        for (int t = 0; t < count_; ++t) {
            if (of_[t].config.method == Method::Fused) return 1;
            const int64_t bytes = of_[t].layout.scratch_bytes(1);
            first += bytes;
            next += of_[t].layout.scratch_bytes(2) - bytes;
        }
        const int64_t others = (BATCH_SCRATCH - first) / std::max<int64_t>(next, 1),
                      most = std::clamp<int64_t>(1 + others, 1, EngineItem::MOST_MATRICES - 1);
        const int64_t batch = tasks_[0].product.batch;
        return batch <= most ? std::max<int64_t>(batch, 1) : ceil_div(batch, ceil_div(batch, most));
    }

    // Of the words that count what is made of a product's images.
    int64_t unmade_bytes(const EnginePlan& plan) const {
        if (plan.config.method != Method::Fused) return 0;
        int64_t words = 2;
        for (const EngineSource* source : {&plan.layout.a, &plan.layout.b})
            if (!source->mapped) words += piece_words(source->blocks);
        return scratch_piece(words * 4);
    }

    // Makes the images that these matrices do not have in common with those before, or leaves that to the
    // launch which reads them.
    void make_images(int64_t first, int64_t matrices, cudaStream_t stream) {
        const Product& p = of_[0].product;
        int number[MOST_IMAGES];  // Of an image among those that are needed.
        unmade_.count = 0;
        for (int x = 0; x < images_.count; ++x) {
            number[x] = ImageUse::NONE;
            if (!images_.needed(x, first)) continue;
            number[x] = unmade_.count;
            unmade_.images[unmade_.count++] = images_.request(x, first, matrices, p.dtype);
        }
        if (unmade_.count > 0 && !leave_to_launch(number, first)) {
            pack_images(p.dtype, p.tf32, unmade_.images, unmade_.count, of_[0].counters, words_,
                        stream);
            unmade_.count = 0;
        } else clear_words(of_[0].counters, words_, stream);
        for (int t = 0; t < count_; ++t) {
            of_[t].a_ready = ready(uses_[t][0], number);
            of_[t].b_ready = ready(uses_[t][1], number);
        }
    }

    const int* ready(const ImageUse& use, const int* number) const {
        if (unmade_.count == 0 || use.image == ImageUse::NONE) return nullptr;
        return number[use.image] == ImageUse::NONE ? nullptr
                                                   : unmade_.work.ready[number[use.image]];
    }

    bool leave_to_launch(const int* number, int64_t matrix) {
        for (int t = 0; t < count_; ++t)
            if (of_[t].config.method != Method::Fused) return false;
        for (int x = 0; x + 1 < unmade_.count; ++x)
            unmade_.work.ready[x + 1] =
                unmade_.work.ready[x] + piece_words(unmade_.images[x].blocks);
        // All matrices but the first have the same to make.
        if (matrix <= 1) ordered_ = set_order(number);
        return ordered_;
    }

    bool set_order(const int* number) {
        OrderedProduct products[MOST_ENGINE_TASKS];
        for (int t = 0; t < count_; ++t) {
            const auto needed = [&](ImageUse use) {
                if (use.image != ImageUse::NONE) use.image = number[use.image];
                return use;
            };
            products[t] = {of_[t].layout.work.schedule, needed(uses_[t][0]), needed(uses_[t][1])};
        }
        Grid images[MOST_IMAGES];
        for (int x = 0; x < MOST_IMAGES; ++x) images[x] = unmade_.images[x].blocks;
        // Two blocks have a tile.
        return set_pack_order(unmade_.work.order, products, count_, images, unmade_.count,
                              current_device().multiprocessors / 2);
    }

    const EngineTask* tasks_;
    int count_;
    int64_t together_;  // Matrices of the batch that are computed at once.
    EnginePlan of_[MOST_ENGINE_TASKS]{};
    ImageUse uses_[MOST_ENGINE_TASKS][2];  // Of A and of B.
    int words_;
    bool ordered_ = false;
    Images images_;
    EngineUnmade unmade_{};
};

}  // namespace

int64_t engine_scratch(const EngineTask* tasks, int count) {
    return static_cast<int64_t>(Plans(tasks, count, 0).end());
}

void engine(const EngineTask* tasks, int count, void* scratch, cudaStream_t stream) {
    Plans plans(tasks, count, reinterpret_cast<uintptr_t>(scratch));
    for (int64_t first = 0; first < tasks[0].product.batch; first += plans.together())
        plans.run(first, stream);
}

}  // namespace packedtri::cuda
