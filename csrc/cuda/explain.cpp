// The choice of a kernel in words.
#include "choice.h"
#include "part_work.h"

namespace packedtri::cuda {
namespace {

std::string explain_wide(const Product& p) {
    return std::to_string(wide_vectors(p)) + " vectors at once" +
           (has_symmetric(p) ? ", two passes over the triangle" : "");
}

std::string explain_small(const Product& p, int side) {
    if (goes_by_lane_grid(p)) return "small, the result in registers";
    return "small, both operands in shared memory as " + std::to_string(side) + " x " +
           std::to_string(side);
}

std::string explain_vector(const Product& p, const MvChoice& c) {
    if (c.way == MvChoice::Way::Held)
        return "matrix-vector, " +
               (c.group > 1 ? std::to_string(c.group) + " matrices" : std::string("a matrix")) +
               " in the shared memory of a block, " +
               (c.sharers > 1 ? std::to_string(c.sharers) + " threads" : std::string("a thread")) +
               " a row";
    const bool groups = c.way == MvChoice::Way::Groups;
    std::string text = groups && has_symmetric(p) ? "matrix-vector, two passes over the triangle"
                                                  : "matrix-vector, one pass over the triangle";
    if (groups)
        text += ", " + std::to_string(c.group) + " elements a block, sums shared by " +
                std::to_string(c.sharers) + " warps";
    return text;
}

std::string explain_fragments(const Config& c) {
    const std::string side = std::to_string(FRAGMENT_SIDE);
    std::string text = "operands straight to registers, tiles " + side + " x " + side;
    if (c.split > 1) text += ", sums shared by " + std::to_string(c.split) + " warps";
    return text;
}

std::string explain_resident(const Config& c) {
    return "packed operand in shared memory, " + std::to_string(c.split) + " warps for " +
           (c.group > 1 ? std::to_string(c.group) + " matrices" : "a matrix") +
           (c.tile == TileSize::Large ? ", large tiles" : "");
}

std::string explain_tiles(const Product& p, const Config& c) {
    const bool engine = by_images(c);
    const int side = side_of_tiles(p, c);
    const bool halved = c.tile == TileSize::Half || (is_wide_mapped(c) && p.b.kind == Kind::Dense);
    const int rows = halved ? side / 2 : side,
              cols = is_wide_mapped(c) && p.a.kind == Kind::Dense ? side / 2 : side;
    std::string text = (engine ? "tile images, tiles " : "direct, tiles ") + std::to_string(rows) +
                       " x " + std::to_string(cols);
    if (has_symmetric(p) && !engine)
        text += mirrors(p.dtype, c) ? ", symmetric operands mirrored" : ", triangle by triangle";
    if (c.joined) text += ", columns of the batch side by side";
    if (c.method == Method::Fused) text += ", images made on the way";
    if (is_persistent(p.dtype, c)) text += ", loaded by warps of their own";
    if (by_warpgroups(p.dtype, c)) text += ", multiplied by warpgroups";
    if (c.method == Method::Mapped) text += ", the dense operand by the copy engine";
    if (engine && in_parts(p)) text += ", in three bfloat16 parts";
    else if (p.dtype == DType::f32 && (engine || by_warpgroups(p.dtype, c))) text += ", in tf32";
    const std::string parts = std::to_string(c.split),
                      long_sums = ", sums of " + std::to_string(c.split_above) + " tiles and more";
    if (c.part > 0)
        text +=
            (triangles(p) == 0 ? ", sums of the tiles left over cut every " : ", sums cut every ") +
            std::to_string(c.part * side / PartWork::TILE) + " steps";
    if (c.graded > 0)
        text += ", sums longer than " + std::to_string(c.graded / 2) + (c.graded % 2 ? ".5" : "") +
                " tiles shared by two to four blocks";
    else if (c.split > 1) text += long_sums + " shared by " + parts + " blocks";
    if (c.group > 1)
        text += ", groups of " + std::to_string(c.group) + " x " + std::to_string(c.group);
    return text;
}

// Of a product that is left to none else.
std::string explain_chosen(const Product& p, const Device& device) {
    if (goes_by_triangles(p, device)) {
        const auto [first, second] = halves(p);
        const std::string of_first = explain_chosen(first, device),
                          of_second = explain_chosen(second, device);
        return "two triangles one after the other, " + of_first +
               (of_first == of_second ? "" : "; then " + of_second);
    }
    const Config c = choose(p, device);
    switch (c.method) {
        case Method::Vector: return explain_vector(p, choose_mv(p, device));
        case Method::Thin:
            return has_symmetric(p) ? "a few vectors, two passes over the triangle"
                                    : "a few vectors";
        case Method::Wide: return explain_wide(p);
        case Method::Strips:
            return "strips of the triangle, " + std::to_string(strip_vectors(p)) +
                   " vectors at once";
        case Method::Fragments: return explain_fragments(c);
        case Method::Resident: return explain_resident(c);
        case Method::SharedImages: return "packed operands in shared memory, as tile images";
        case Method::Small: return explain_small(p, small_side(p, device));
        default: return explain_tiles(p, c);
    }
}

}  // namespace

std::string explain(const Product& asked, const Device& device) {
    if (leaves_to_dense(asked, device)) {
        if (!goes_on_unpacked(asked, device)) return "unpacked, then dense torch";
        return "symmetric operand unpacked, then " + explain(with_unpacked(asked), device);
    }
    return explain_chosen(settled(asked, device), device);
}

}  // namespace packedtri::cuda
