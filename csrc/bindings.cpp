#include "bindings.h"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <algorithm>
#include <array>
#include <optional>

#include "arguments.h"
#include "index.h"

namespace packedtri {

namespace {

// An operand of one dimension that is no packed one: a vector. As in torch.matmul it is a row on the
// left and a column on the right, and its dimension of length 1 is missing from the result.
bool is_vector(const Tensor& t, Kind kind) { return kind == Kind::Dense && t.dim() == 1; }

size_t inner_dims_of(const Tensor& t, Kind kind) {
    return kind == Kind::Dense && !is_vector(t, kind) ? 2 : 1;
}

// The packed matrix that all of a batch are, if it is one that was expanded.
std::optional<Tensor> expanded(const Tensor& t) {
    if (t.dim() == 1) return std::nullopt;
    Tensor one = t;
    for (int64_t d = 0; d + 1 < t.dim(); ++d) {
        if (t.stride(d) != 0 && t.size(d) != 1) return std::nullopt;
        one = torch::stable::narrow(one, d, 0, 1);
    }
    return torch::stable::reshape(one, {t.size(t.dim() - 1)});
}

using Extent = std::array<int64_t, 2>;

// rows x cols of an operand as the product reads it.
Extent extent(const Tensor& t, Kind kind, int64_t n, bool left) {
    if (kind != Kind::Dense) {
        check_packed(t, n, "mm");
        return {n, n};
    }
    STD_TORCH_CHECK(t.dim() >= 1, "[packedtri::mm] expected dense operand ", left ? "a" : "b",
                    " to have at least 1 dimension; got ", to_string(sizes_of(t)));
    const int64_t last = t.size(t.dim() - 1);
    if (t.dim() == 1) return left ? Extent{1, last} : Extent{last, 1};
    return {t.size(t.dim() - 2), last};
}

// Some of the matrices of a batch of shape `batch`: all before dimension `dim` have length 1.
struct Piece {
    const Sizes& batch;
    int64_t dim, start, length;

    // Of an operand, which may have been broadcast along that dimension, or of a result.
    Tensor of(Tensor t, size_t inner_dims) const {
        const int64_t own = t.dim() - static_cast<int64_t>(inner_dims + batch.size()) + dim;
        return own < 0 || t.size(own) == 1 ? t : torch::stable::narrow(t, own, start, length);
    }
};

// Calls f with pieces of about `most` matrices, less than all, and of one at least along a dimension: what is still too
// large is cut again.
template <class F>
void for_pieces(const Sizes& batch, int64_t most, const F& f) {
    const auto first =
        std::find_if(batch.begin(), batch.end(), [](int64_t length) { return length > 1; });
    const int64_t dim = first - batch.begin(), rest = product_of(batch) / *first,
                  step = std::clamp<int64_t>(most / rest, 1, *first - 1);
    for (int64_t at = 0; at < *first; at += step)
        f(Piece{batch, dim, at, std::min(step, *first - at)});
}

int64_t kind_of_transpose(int64_t kind) {
    return static_cast<int64_t>(transposed(static_cast<Kind>(kind)));
}

// A vector gets the strides that torch's unsqueeze would give it.
Operand operand(const Walkable& w, Kind kind, const Extent& size, bool left, bool vector) {
    Operand x{w.tensor.const_data_ptr(),
              kind,
              size[0],
              size[1],
              w.row_stride,
              w.col_stride,
              w.batch_stride};
    if (!vector) return x;
    const int64_t stride = w.tensor.stride(w.tensor.dim() - 1);
    x.row_stride = left ? size[1] * stride : stride;
    x.col_stride = left ? stride : 1;
    return x;
}

}  // namespace

MmArguments mm_arguments(const Tensor& a, const Tensor& b, int64_t how) {
    const auto kind = [&](int place) { return how >> 3 * place & 7; };
    constexpr auto dense = static_cast<int64_t>(Kind::Dense);
    const bool neither = kind(0) == dense && kind(1) == dense;
    const Tensor& told = kind(0) == dense && !neither ? b : a;
    STD_TORCH_CHECK(how >= 0 && how < 1024 && told.dim() > 0,
                    "[packedtri::_mm] expected kinds and operands of one dimension or more");
    const int64_t dim = told.dim() - (neither && told.dim() > 1 ? 2 : 1);
    return {neither ? told.size(dim) : row_of(told.size(dim)), kind(0), kind(1), kind(2),
            how >> 9 != 0};
}

Tensor mm(const Operands& operands, int64_t n, int64_t c_kind, bool tf32,
          const std::function<void(const Product&)>& run, const OtherMm& other,
          const std::function<bool(const ColumnBatch&)>& turns) {
    const Tensor &a = operands.a, &b = operands.b;
    const int64_t a_kind = operands.a_kind, b_kind = operands.b_kind;
    const Tensor* const into = operands.into;
    const Kind ka = kind_of(a_kind, "mm", "a_kind"), kb = kind_of(b_kind, "mm", "b_kind"),
               kc = kind_of(c_kind, "mm", "c_kind");
    STD_TORCH_CHECK(kc == Kind::Lower || kc == Kind::Dense,
                    "[packedtri::mm] expected c_kind to be 0 (lower) or 3 (dense); got ", c_kind);
    const DType dtype = dtype_of(a, "mm");
    STD_TORCH_CHECK(a.scalar_type() == b.scalar_type(),
                    "[packedtri::mm] expected both operands to have the same dtype");
    STD_TORCH_CHECK(a.device() == b.device(),
                    "[packedtri::mm] expected both operands to be on the same device");
    const Extent size_a = extent(a, ka, n, true), size_b = extent(b, kb, n, false);
    STD_TORCH_CHECK(size_a[1] == size_b[0], "[packedtri::mm] cannot multiply ", size_a[0], " x ",
                    size_a[1], " by ", size_b[0], " x ", size_b[1]);
    const int64_t rows = size_a[0], cols = size_b[1];
    const bool row = is_vector(a, ka), column = is_vector(b, kb);
    STD_TORCH_CHECK(kc == Kind::Dense || (rows == cols && rows == n && !row && !column),
                    "[packedtri::mm] a packed result needs a square product of order ", n, "; got ",
                    rows, " x ", cols);
    const size_t inner_a = inner_dims_of(a, ka), inner_b = inner_dims_of(b, kb);
    Sizes shape = broadcast(batch_of(a, inner_a), batch_of(b, inner_b), "mm");
    const Sizes batch = shape;
    const int64_t matrices = product_of(batch);
    if (kc == Kind::Lower) shape.push_back(row_start(n));
    if (kc == Kind::Dense && !row) shape.push_back(rows);
    if (kc == Kind::Dense && !column) shape.push_back(cols);

    if (into) check_out(*into, shape, "_mm_out");
    const auto result = [&] { return into ? *into : allocate(a, shape); };
    if (product_of(shape) == 0 || size_a[1] == 0) {
        Tensor c = result();
        return torch::stable::zero_(c);
    }
    const auto product = [&](const Operands& x) {
        return mm(x, n, c_kind, tf32, run, other, turns);
    };
    // One matrix for the whole batch may have been expanded to it.
    if (ka != Kind::Dense && kb == Kind::Dense && !column && has_batch(b, batch, inner_b))
        if (const auto one = expanded(a)) return product({*one, b, a_kind, b_kind, into});
    if (kb != Kind::Dense && ka == Kind::Dense && !row && has_batch(a, batch, inner_a))
        if (const auto one = expanded(b)) return product({a, *one, a_kind, b_kind, into});

    // The same, of `count` vectors that are the rows of a matrix.
    const auto by_rows = [&](Operands x, int64_t count) {
        Sizes flat{count};
        if (!column) flat.push_back(product_of(shape) / count);
        // What is returned must not be a view of something else, of which autograd refuses changes in place.
        const Tensor c = result(), place = torch::stable::reshape(c, flat);
        x.into = &place;
        product(x);
        return c;
    };
    // A dense left operand times one matrix for the whole batch is a single, taller product.
    if (const int64_t count = matrices * rows; ka == Kind::Dense && kc == Kind::Dense &&
                                               a.dim() > 2 && batch_of(b, inner_b).empty() &&
                                               count <= CUDA_REACH) {
        const Tensor tall = torch::stable::reshape(a, {count, size_a[1]});
        return by_rows({tall, b, a_kind, b_kind}, count);
    }
    // So can one matrix for a batch of columns be. No kind reads the transpose of a Hermitian one, which is its
    // conjugate.
    if (const int64_t count = matrices * cols;
        ka != Kind::Dense && kb == Kind::Dense && kc == Kind::Dense && b.dim() > 2 &&
        batch_of(a, inner_a).empty() && !is_hermitian(a_kind, dtype) && count <= CUDA_REACH &&
        turns({dtype, ka, n, cols, matrices, tf32 && dtype == DType::f32})) {
        const Tensor tall = torch::stable::reshape(torch::stable::transpose(b, -2, -1), {count, n});
        const Operands turned{tall, a, b_kind, kind_of_transpose(a_kind)};
        if (cols == 1) return by_rows(turned, count);
        Sizes turned_shape = batch;
        turned_shape.insert(turned_shape.end(), {cols, n});
        const Tensor c =
            torch::stable::transpose(torch::stable::reshape(product(turned), turned_shape), -2, -1);
        Tensor place = result();
        return torch::stable::copy_(place, c);
    }
    const Walkable wa = walkable(a, batch, inner_a, row), wb = walkable(b, batch, inner_b, column);
    const int64_t c_size = kc == Kind::Lower ? row_start(n) : rows * cols;
    Operand x = operand(wa, ka, size_a, true, row), y = operand(wb, kb, size_b, false, column);
    x.hermitian = is_hermitian(a_kind, dtype);
    y.hermitian = is_hermitian(b_kind, dtype);
    Product p{dtype, rows, cols, size_a[1], matrices, x, y, Result{nullptr, kc, cols, c_size}};
    p.tf32 = tf32 && dtype == DType::f32;
    if (other.pays(operands, p)) {
        const int64_t most = matrices > 1 ? other.at_once(p) : 1;
        if (matrices <= most) return other.run(operands, p);
        Tensor c = result();
        for_pieces(batch, most, [&](const Piece& piece) {
            Tensor part = piece.of(c, shape.size() - batch.size());
            torch::stable::copy_(
                part, product({piece.of(a, inner_a), piece.of(b, inner_b), a_kind, b_kind}));
        });
        return c;
    }
    Tensor c = result();
    p.c.data = c.mutable_data_ptr();
    run(p);
    return c;
}

void mm_into(const Tensor& out, int64_t alignment, const Tensor& a, const Tensor& b, int64_t how,
             Multiply multiply) {
    constexpr const char* op = "_mm_out";
    const MmArguments x = mm_arguments(a, b, how);
    STD_TORCH_CHECK(x.c_kind == static_cast<int64_t>(Kind::Dense), "[packedtri::", op,
                    "] expected kinds of a dense result");
    const bool apart = !may_overlap(out, a) && !may_overlap(out, b);
    compute_into(out, a, alignment, apart, op, [&](const Tensor* into) {
        return multiply({a, b, x.a_kind, x.b_kind, into}, x.n, x.c_kind, x.tf32);
    });
}

bool same_memory(const Tensor& a, const Tensor& b) {
    return a.const_data_ptr() == b.const_data_ptr() && a.sizes().equals(b.sizes()) &&
           a.strides().equals(b.strides());
}

static Tensor matmul_into(const Tensor& out, const Tensor& a, const Tensor& b) {
    std::array<StableIValue, 3> stack{torch::stable::detail::from(a),
                                      torch::stable::detail::from(b),
                                      torch::stable::detail::from(out)};
    STABLE_TORCH_ERROR_CODE_CHECK(
        torch_call_dispatcher("aten::matmul", "out", stack.data(), TORCH_ABI_VERSION));
    return torch::stable::detail::to<Tensor>(stack[0]);
}

Tensor dense_mm(const Operands& x, int64_t n, const Product& p, const DenseWay& way) {
    const auto dense_of = [&](const Tensor& t, int64_t kind) {
        return kind_of(kind, "mm", "kind") == Kind::Dense ? t : way.unpack(t, n, kind);
    };
    const Tensor left = dense_of(x.a, x.a_kind);
    const bool same = same_memory(x.a, x.b);
    const Tensor right = same && x.a_kind == x.b_kind ? left
                         : same && kind_of_transpose(x.a_kind) == x.b_kind
                             ? torch::stable::transpose(left, -2, -1)
                             : dense_of(x.b, x.b_kind);
    const Tensor c = x.into ? matmul_into(*x.into, left, right)
                            : torch::stable::contiguous(torch::stable::matmul(left, right));
    Product done = p;
    done.c = {c.mutable_data_ptr(), Kind::Dense, p.n, p.m * p.n};
    way.mend(done, p.c.kind);
    return p.c.kind == Kind::Dense ? c : way.pack(c, static_cast<int64_t>(p.c.kind));
}

Product product_like(int dtype, int64_t n, int64_t m, int64_t batch, int a_kind, int b_kind,
                     int c_kind, bool tf32) {
    // Aligned, and one after another in a batch; where the matrices are decides nothing else.
    alignas(16) static const char a[16] = {}, b[16] = {};
    // Of two triangles that are transposes of each other half of the product is kept where they are one.
    const bool same = c_kind == static_cast<int>(Kind::Lower) && a_kind != b_kind &&
                      kind_of_transpose(a_kind) == b_kind;
    Product p{};
    p.dtype = static_cast<DType>(dtype);
    p.batch = batch;
    p.a.kind = kind_of(a_kind, "explain", "a_kind");
    p.b.kind = kind_of(b_kind, "explain", "b_kind");
    p.c.kind = kind_of(c_kind, "explain", "c_kind");
    const bool packed_a = p.a.kind != Kind::Dense, packed_b = p.b.kind != Kind::Dense;
    p.m = packed_b && !packed_a ? m : n;
    p.n = packed_a && !packed_b ? m : n;
    p.k = packed_a || packed_b ? n : m;
    p.a = {a, p.a.kind, p.m, p.k, p.k, 1, 0};
    p.b = {same ? a : b, p.b.kind, p.k, p.n, p.n, 1, 0};
    for (Operand* x : {&p.a, &p.b}) x->batch_stride = stored_elements(*x);
    p.a.hermitian = is_hermitian(a_kind, p.dtype);
    p.b.hermitian = is_hermitian(b_kind, p.dtype);
    p.c.row_stride = p.n;
    p.tf32 = tf32 && p.dtype == DType::f32;
    return p;
}

std::tuple<Tensor, Tensor> mm_pair(const Operands& x, const Operands& y, int64_t n, bool tf32,
                                   const std::function<void(const Product&)>& run_one,
                                   const std::function<void(const Product&, const Product&)>& run) {
    const auto one = [&](const Operands& t, const std::function<void(const Product&)>& run) {
        for (const int64_t kind : {t.a_kind, t.b_kind})
            STD_TORCH_CHECK(kind == 0 || kind == 1,
                            "[packedtri::mm_pair] expected kinds 0 (lower) or 1 (upper); got ",
                            kind);
        constexpr auto lower = static_cast<int64_t>(Kind::Lower);
        return mm(t, n, lower, tf32, run, {}, {});
    };
    STD_TORCH_CHECK(x.a.device() == y.a.device(),
                    "[packedtri::mm_pair] expected all operands to be on the same device");
    // One within the other: what the first product reads must live until both have been started.
    std::optional<Tensor> second;
    const Tensor first = one(x, [&](const Product& p) {
        bool both = false;
        second = one(y, [&](const Product& q) {
            both = true;
            run(p, q);
        });
        if (!both) run_one(p);
    });
    if (!second) second = one(y, run_one);
    return {first, *second};
}

}  // namespace packedtri

// For tests, reached through ctypes of either library: how many bytes copies may take that are left to dense torch. Returns
// what it was before.
extern "C" __attribute__((visibility("default"))) int64_t packedtri_limit_copies(int64_t bytes) {
    return packedtri::copies_limit.exchange(bytes);
}
