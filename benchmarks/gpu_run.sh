#!/usr/bin/env bash
# Proves a built source tree on a machine with an NVIDIA GPU: tests, sanitizers, benchmarks.
#
#   benchmarks/gpu_run.sh OUTPUT [STEP...]
#
# Steps: info test memcheck racecheck initcheck synccheck kernelbench bench; all by default. Three more run
# only where they are named. sweep has about 1100 cases, which take two minutes: it looks for sizes at which
# dense torch is faster, and lists them at the end of its logs. conversions, three minutes, does the same with
# the conversions of operands and results counted in dense torch's time. load, three minutes, times products
# in bfloat16 and TF32 at the clock that the GPU keeps under their load. racecheck takes twenty seconds and
# more a test, so its limit ends it before it has run them all.
#
# Each writes OUTPUT/STEP.log; OUTPUT/summary.txt gets its exit code and duration. A failing step does
# not stop the others; the exit code of the script is the number of steps that failed.
#
# Nothing is installed: `python3` must have torch, pytest, hypothesis and the packages of the extra
# `cli`, and `make build` must have left the libraries in packedtri/. Where the tree has no git
# history, PACKEDTRI_COMMIT names the commit that the results belong to. PYTEST_ARGS goes to pytest in
# the step test: where it has pytest-xdist, "-n 8" takes a third of the time.
set -uo pipefail

output=$(mkdir -p "${1:?usage: benchmarks/gpu_run.sh OUTPUT [STEP...]}" && cd "$1" && pwd)
shift
steps=("$@")
if [ ${#steps[@]} -eq 0 ]; then
  steps=(info test memcheck racecheck initcheck synccheck kernelbench bench)
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONPATH="$PWD" PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
PYTEST_ARGS=${PYTEST_ARGS:-}
failed=0

# step NAME SECONDS COMMAND...: run a command under a time limit and record how it went.
step() {
  local name=$1 limit=$2 start=$SECONDS code=0
  shift 2
  timeout --kill-after=10 "$limit" "$@" >"$output/$name.log" 2>&1 || code=$?
  echo "$name: exit $code after $((SECONDS - start)) s" | tee -a "$output/summary.txt"
  if [ $code -ne 0 ]; then
    failed=$((failed + 1))
    tail -n 20 "$output/$name.log"
  fi
}

# The kernel tests, listed in files of this folder when they are first needed: one for each process, with
# tests that follow one another, which run the same kernels. The tools take long to prepare each kernel.
parts=
list_kernel_tests() {
  parts=$(mktemp -d)
  trap 'rm -r "$parts"' EXIT
  PACKEDTRI_TEST_SMALL=1 python3 -m pytest -q -p no:cacheprovider --collect-only \
    -m "cuda and sanitizer" tests | grep -E '^tests/.*::' >"$parts/all"
  split -e -n "l/$(($(nproc) < 12 ? $(nproc) : 12))" "$parts/all" "$parts/tests."
}

# spread PARTS OPTION...: the kernel tests, each part in a process under compute-sanitizer, which does
# not come to an end under pytest-xdist. Fails if one of the processes does.
spread() {
  local parts=$1 code=0 part
  shift
  for part in "$parts"/tests.*; do
    compute-sanitizer --target-processes all --error-exitcode 99 --print-limit 20 "$@" \
      python3 -m pytest -v -x -p no:cacheprovider "@$part" >"$parts/log.${part##*.}" 2>&1 &
  done
  for part in $(jobs -p); do wait "$part" || code=$?; done
  cat "$parts"/log.*
  return $code
}
export -f spread

# sanitize TOOL SECONDS [OPTION...]: the kernel tests at small sizes under compute-sanitizer. Without
# torch's caching allocator every tensor has its own allocation, so that overruns do not land in a
# neighbour unseen. initcheck must see torch's kernels write; the other tools watch ours only, which
# takes a fraction of the time.
sanitize() {
  local tool=$1 limit=$2
  shift 2
  [ -n "$parts" ] || list_kernel_tests
  PACKEDTRI_TEST_SMALL=1 PYTORCH_NO_CUDA_MEMORY_CACHING=1 step "$tool" "$limit" \
    bash -c 'spread "$@"' spread "$parts" --tool "$tool" "$@"
}

types=(--dtype float32 --dtype float64 --dtype bfloat16)
commit=${PACKEDTRI_COMMIT:-$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)}
for name in "${steps[@]}"; do
  case $name in
    info) step info 120 python3 -m packedtri info ;;
    test) step test 480 python3 -m pytest -q -p no:cacheprovider $PYTEST_ARGS -m cuda tests ;;
    # Imports may fail to find functions of the driver, which is none of our business.
    memcheck) sanitize memcheck 500 --kernel-regex kns=packedtri --report-api-errors no ;;
    racecheck) sanitize racecheck 500 --kernel-regex kns=packedtri ;;
    initcheck) sanitize initcheck 500 ;;
    synccheck) sanitize synccheck 500 --kernel-regex kns=packedtri ;;
    kernelbench)
      step kernelbench 120 python3 examples/kernelbench.py
      step kernelbench_backward 120 python3 examples/kernelbench.py --backward
      ;;
    bench)
      step bench 240 python3 -m packedtri bench --device cuda --commit "$commit" \
        --output "$output/bench" "${types[@]}" \
        --op L@L --op "L@L backward" --n 1024 --n 2048 --n 4096 --n 4097 --n 8192
      step bench_tf32 120 python3 -m packedtri bench --device cuda --commit "$commit" \
        --output "$output/bench_tf32" --dtype float32 --tf32 --op L@L --op "L@L backward" \
        --op L@L.mT --op S@S --op syrk --op L@dense --op S@dense --n 1024:8192:x2
      step bench_large_tf32 60 python3 -m packedtri bench --device cuda --commit "$commit" \
        --output "$output/bench_large_tf32" --dtype float32 --tf32 --op L@L --n 16384
      step bench_large 60 python3 -m packedtri bench --device cuda --commit "$commit" \
        --output "$output/bench_large" --dtype bfloat16 --op L@L --n 16384
      step bench_algebra 300 python3 -m packedtri bench --device cuda --commit "$commit" \
        --output "$output/bench_algebra" "${types[@]}" \
        --op L@L.mT --op syrk --op L@dense --op S@dense --op L@x --op S@x \
        --op solve_triangular --op cholesky --op inverse --op "inv_quad_logdet gradient" \
        --n 1024 --n 4096 --n 8192
      step bench_products 60 python3 -m packedtri bench --device cuda --commit "$commit" \
        --output "$output/bench_products" --dtype float32 --dtype bfloat16 \
        --op L@L.mT --op syrk --op L@dense --op S@dense --n 2048 --n 4097
      step bench_columns 120 python3 -m packedtri bench --device cuda --commit "$commit" \
        --output "$output/bench_columns" "${types[@]}" \
        --op L@dense --op S@dense --n 1024 --n 4096 --n 8192 --m 4 --m 16 --m 64 --m 256
      step bench_batched 120 python3 -m packedtri bench --device cuda --commit "$commit" \
        --output "$output/bench_batched" --dtype float32 --dtype bfloat16 --batch 4096 \
        --op L@L --op solve_triangular --op cholesky \
        --batched-n 16 --batched-n 32 --batched-n 64 --batched-n 128
      step bench_one_for_a_batch 60 python3 -m packedtri bench --device cuda --commit "$commit" \
        --output "$output/bench_one_for_a_batch" --dtype float32 --dtype bfloat16 --batch 32 \
        --op "one L@dense" --batched-n 1024 --batched-n 2048 --batched-n 4096 --m 64 --m 128
      step bench_elongated 60 python3 -m packedtri bench --device cuda --quick --commit "$commit" \
        --output "$output/bench_elongated" "${types[@]}" --op L@dense --op dense@L --op S@dense \
        --op syrk --n 8 --n 16 --n 64 --m 10000 --m 100000 --m 1000000
      step bench_calls 120 python3 -m packedtri bench --device cuda --calls --commit "$commit" \
        --output "$output/bench_calls" --dtype float32 \
        --op L@L --op "L@L backward" --op L@L.mT --op syrk --op S@S --op L@dense --op S@dense \
        --op L@x --op S@x --op solve_triangular --op "solve_triangular vector" --op cholesky \
        --op inverse --n 16:1024:x4
      ;;
    sweep)
      # Powers of two, and what lies halfway between them, each with its odd neighbour.
      sizes=(--ragged --n 32:8192:x2 --n 48:6144:x2)
      step sweep 240 python3 -m packedtri bench --device cuda --quick --commit "$commit" \
        --output "$output/sweep" "${types[@]}" "${sizes[@]}" --op L@L --op L@dense --op S@dense
      step sweep_columns 240 python3 -m packedtri bench --device cuda --quick --commit "$commit" \
        --output "$output/sweep_columns" "${types[@]}" "${sizes[@]}" --op L@dense \
        --m 16 --m 64 --m 256
      step sweep_vectors 120 python3 -m packedtri bench --device cuda --quick --commit "$commit" \
        --output "$output/sweep_vectors" "${types[@]}" "${sizes[@]}" --op L@x --op U@x --op S@x
      step sweep_batched 120 python3 -m packedtri bench --device cuda --quick --commit "$commit" \
        --output "$output/sweep_batched" "${types[@]}" --op L@L --op L@dense --op S@dense \
        --batch 1024 --ragged --batched-n 8:256:x2 --batched-n 12:192:x2
      ;;
    conversions)
      step conversions 240 python3 -m packedtri bench --device cuda --quick --conversions \
        --commit "$commit" --output "$output/conversions" --ragged --n 64:4096:x2 --n 768 --n 1536 \
        "${types[@]}" --op L@L --op L@U --op U@L --op L@L.mT \
        --op S@S --op L@S --op syrk --op L@dense --op U@dense --op dense@L --op S@dense --op L@x \
        --op S@x --op solve_triangular --op cholesky --op inverse
      step conversions_columns 120 python3 -m packedtri bench --device cuda --quick --conversions \
        --commit "$commit" --output "$output/conversions_columns" --n 128:4096:x2 --n 1536 \
        "${types[@]}" --op L@dense --op U@dense --op dense@L \
        --op S@dense --op solve_triangular --m 2 --m 8 --m 32 --m 128
      products=(--op L@L --op L@U --op L@L.mT --op L@S --op syrk --op L@dense --op U@dense
        --op dense@L --op S@dense)
      for batch in 32 512; do
        step "conversions_batched_$batch" 120 python3 -m packedtri bench --device cuda --quick \
          --conversions --commit "$commit" --output "$output/conversions_batched_$batch" \
          --batch "$batch" --batched-n 16:256:x2 --batched-n 96:384:x2 "${types[@]}" \
          "${products[@]}" --op L@x --op S@x --op solve_triangular --op cholesky
      done
      step conversions_batched_8 120 python3 -m packedtri bench --device cuda --quick \
        --conversions --commit "$commit" --output "$output/conversions_batched_8" \
        --batch 8 --batched-n 256:1024:x2 --batched-n 384:1536:x2 "${types[@]}" "${products[@]}"
      step conversions_tf32 120 python3 -m packedtri bench --device cuda --quick --conversions \
        --commit "$commit" --output "$output/conversions_tf32" --dtype float32 --tf32 \
        --n 128:4096:x2 --n 192:3072:x2 "${products[@]}" --op S@S
      complex=(--dtype complex64 --dtype complex128)
      step conversions_complex 120 python3 -m packedtri bench --device cuda --quick --conversions \
        --commit "$commit" --output "$output/conversions_complex" "${complex[@]}" \
        --n 64:2048:x2 --n 513 --n 768 --n 1025 "${products[@]}" \
        --op S@S --op L@x --op S@x --op solve_triangular --op cholesky --op inverse
      step conversions_complex_batched_32 120 python3 -m packedtri bench --device cuda --quick \
        --conversions --commit "$commit" --output "$output/conversions_complex_batched_32" \
        --batch 32 --batched-n 16:256:x2 "${complex[@]}" "${products[@]}" \
        --op solve_triangular --op cholesky
      for batch in 8 32 512; do
        step "conversions_tf32_batched_$batch" 120 python3 -m packedtri bench --device cuda --quick \
          --conversions --commit "$commit" --output "$output/conversions_tf32_batched_$batch" \
          --dtype float32 --tf32 --batch "$batch" --batched-n 64:512:x2 --batched-n 96:384:x2 \
          "${products[@]}"
      done
      ;;
    load)
      step load 240 python3 -m packedtri bench --device cuda --under-load --commit "$commit" \
        --output "$output/load" --dtype bfloat16 --op L@L --op L@L.mT --op L@dense --op S@dense \
        --n 1024:8192:x2
      step load_tf32 120 python3 -m packedtri bench --device cuda --under-load --commit "$commit" \
        --output "$output/load_tf32" --dtype float32 --tf32 --op L@L --n 1024:8192:x2
      ;;
    *)
      echo "no step is named $name" >&2
      exit 64
      ;;
  esac
done
exit $failed
