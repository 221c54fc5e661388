#!/usr/bin/env bash
# Random operations through the mount, the whole tree compared with the model after each: MODEL_STEPS (default 3000) for
# each of MODEL_SEEDS (default "1 2 3 4"). Every second seed continues on a cell that was stopped and started again.
. "$(dirname "$0")/../lib.sh"
suite model
MODEL_STEPS=${MODEL_STEPS:-3000}
MODEL_SEEDS=${MODEL_SEEDS:-1 2 3 4}
[ "$(id -u)" = 0 ] || die "needs root: it makes device nodes and changes owners"

build() { (cd "$ROOT" && cargo build --quiet --locked --example mounted); } # as the unit tests have it

seed() {
  if [ $(($1 % 2)) = 0 ]; then cell_restart; fi
  "$CARGO_TARGET_DIR/debug/examples/mounted" "$MNT" --seed "$1" --steps "$MODEL_STEPS" "${STRICT[@]}"
}

STRICT=()
if have_cell; then STRICT=(--strict); fi
run build build
cell_start
for number in $MODEL_SEEDS; do run "seed-$number" seed "$number"; done
suite_end
