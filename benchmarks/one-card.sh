#!/usr/bin/env bash
# What RUNS lacks of the tables and figures of mini-ImageNet, on one card: `lcwof reproduce` by two processes that share
# the work and, while the first base model is being made, what they need compiled ahead. Stopped, the same command goes on.
#
#   bash benchmarks/one-card.sh DATA RUNS
#
# To go on with the published runs, copy them first:
#   cp -r results/episodes/mini-imagenet RUNS/mini-imagenet
#
# TABLES: which; FIRST: what one of the processes begins with; AT_ONCE: learners side by side.
set -u
data=$1 runs=$2
code=$(cd "$(dirname "$0")/.." && pwd)
at_once=${AT_ONCE:-50}
first=${FIRST:-"mini-gfsl --only conv4-wide/icarl,conv4-wide/ucir-5w5s,conv4-wide/lcwof --at-once 100"}
tables=${TABLES:-"lambda-after-phase3 training-curves overview no-phase2 length-of-phase2 weight-decay early-stop
  lambda-after-phase2 batch-norm alternate-phases cosine-bias batch-ratios distillation distillation-more-ways"}
mkdir -p "$runs/logs"
export LCWOF_DATA=$data LCWOF_CACHE=${LCWOF_CACHE:-$runs/cache} TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-$runs/compiled}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-4} PYTHONUNBUFFERED=1
python=${PYTHON:-python3}
trap 'trap - INT TERM; kill 0' INT TERM # what runs in the background does not hear Ctrl-C
if command -v nvidia-cuda-mps-control >/dev/null; then # else processes take turns on the card
  export CUDA_MPS_PIPE_DIRECTORY=$runs/mps CUDA_MPS_LOG_DIRECTORY=$runs/mps
  mkdir -p "$runs/mps" && nvidia-cuda-mps-control -d
  trap 'echo quit | nvidia-cuda-mps-control' EXIT
fi

lcwof() { # NAME OF THE LOG, WORDS
  local log=$runs/logs/$1.log status=0
  shift
  echo "$(date +%T) lcwof $*" >>"$log"
  "$python" -m lcwof.cli.main "$@" >>"$log" 2>&1 || status=$?
  [ $status = 0 ] || echo "$(date +%T) status $status" >>"$log"
}

base=$runs/mini-imagenet/base-resnet12.safetensors
if [ ! -e "$base" ]; then
  # shellcheck disable=SC2086
  "$python" "$code/benchmarks/ahead.py" $tables --at-once "$at_once" >>"$runs/logs/ahead.log" 2>&1 &
  ahead=$!
  lcwof base pretrain fast.toml --data mini-imagenet -o "$base" & # so that `wait` hears of signals
  wait $!
  kill "$ahead" 2>/dev/null
fi
# shellcheck disable=SC2086
{
  (lcwof first reproduce $first -o "$runs"; lcwof first reproduce $tables --at-once "$at_once" -o "$runs") &
  lcwof second reproduce $tables --at-once "$at_once" -o "$runs" &
}
wait
