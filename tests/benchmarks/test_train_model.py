"""The model, its buckets and the compute phase of train_step, without a GPU; PyTorch's part if it is installed."""

from __future__ import annotations

import ctypes
import math
import struct

import pytest

from railwright.benchmarks.train import resnet_torch as train_torch
from railwright.benchmarks.train.buckets import (
    Bucket,
    cut,
    format_bucket,
    last_parts,
    parse_bucket,
    parse_buckets,
    slices,
)
from railwright.benchmarks.train.model import parse_model, resnet50_shapes
from railwright.errors import UsageError
from railwright.native.library import function
from railwright.native.memory import Buffer
from railwright.native.train_load import CUDA_TYPES, shape

MIB = 1 << 20
RESNET50 = parse_model("resnet50")
FORMATS = {"fp32": "f", "fp16": "e"}


def test_resnet50_has_the_parameters_that_its_paper_and_every_framework_count():
    shapes = resnet50_shapes()
    assert len(shapes) == 161
    assert sum(math.prod(one) for one in shapes) == 25_557_032
    assert sum(len(one) == 4 for one in shapes) == 53, "convolutions"
    assert shapes[0] == (64, 3, 7, 7)
    assert shapes[-2:] == ((1000, 2048), (1000,))


def test_gradients_are_counted_from_the_last_layer_to_the_first():
    assert RESNET50.gradients[:2] == (1000, 2_048_000)
    assert RESNET50.gradients[-1] == 64 * 3 * 7 * 7
    assert RESNET50.parameters == 25_557_032


@pytest.mark.parametrize(
    ("text", "count"), [("7B", 7 * 10**9), ("25.6M", 25_600_000), ("350m", 350 * 10**6), ("10000", 10_000)]
)
def test_a_model_can_be_a_number_of_parameters(text, count):
    model = parse_model(text)
    assert (model.parameters, model.tensors) == (count, False)


@pytest.mark.parametrize("text", ["", "resnet", "7T", "-1", "9999", "201B", "1e9", "7 B B", "9" * 60, "٣M"])
def test_an_invalid_model_is_refused_with_the_value(text):
    with pytest.raises(UsageError) as caught:
        parse_model(text)
    assert caught.value.hint


@pytest.mark.parametrize(("text", "bytes_"), [("25M", 25 * MIB), ("512K", 512 << 10), ("1G", 1 << 30), ("1500", 1500)])
def test_a_bucket_size_is_printed_as_it_is_read(text, bytes_):
    assert parse_bucket(text) == bytes_
    assert format_bucket(bytes_) == text


def test_kinds_of_buckets_are_taken_once_each():
    assert parse_buckets("25M,single,25600K,tensor,single") == ("25M", "single", "tensor")


@pytest.mark.parametrize("text", ["", "0", "1023", "all", "25M,,single", "-1M"])
def test_an_invalid_bucket_is_refused(text):
    with pytest.raises(UsageError):
        parse_buckets(text)


@pytest.mark.parametrize("kind", ["25M", "1M", "tensor", "single"])
@pytest.mark.parametrize("element_bytes", [2, 4])
def test_buckets_of_tensors_hold_every_gradient_once_and_cut_none(kind, element_bytes):
    buckets = cut(kind, RESNET50.gradients, element_bytes, divisible=False)
    assert sum(bucket.elements for bucket in buckets) == RESNET50.parameters
    assert [bucket.first for bucket in buckets] == [0, *(bucket.end for bucket in buckets[:-1])]
    borders = {0, *(sum(RESNET50.gradients[: index + 1]) for index in range(161))}
    assert {bucket.end for bucket in buckets} <= borders


def test_a_bucket_of_tensors_is_closed_as_soon_as_it_holds_its_size():
    buckets = cut("25M", RESNET50.gradients, 4, divisible=False)
    assert len(buckets) == 4
    assert all(bucket.elements * 4 >= 25 * MIB for bucket in buckets[:-1])
    assert cut("1G", RESNET50.gradients, 4, divisible=False) == (Bucket(0, 25_557_032),)
    assert len(cut("tensor", RESNET50.gradients, 4, divisible=False)) == 161


def test_a_model_without_tensors_is_cut_exactly():
    buckets = cut("25M", (7 * 10**9,), 2, divisible=True)
    assert {bucket.elements for bucket in buckets[:-1]} == {25 * MIB // 2}
    assert sum(bucket.elements for bucket in buckets) == 7 * 10**9
    with pytest.raises(UsageError, match="more than 4096"):
        cut("25M", (200 * 10**9,), 4, divisible=True)


def test_a_bucket_waits_for_the_layer_that_holds_its_last_element():
    buckets = (Bucket(0, 64), Bucket(64, 65), Bucket(129, 63), Bucket(192, 8))
    assert last_parts(buckets, (64, 64, 64, 8)) == (0, 2, 2, 3)


@pytest.mark.parametrize("total", [10_000, 25_557_032, 7 * 10**9, 12_345_677])
def test_slices_hold_everything_and_begin_where_a_matrix_may(total):
    found = slices(total, 32)
    assert sum(found) == total
    assert len(found) <= 32
    assert all(size % 64 == 0 and size > 0 for size in found[:-1])
    assert max(found) < total / len(found) + 128


@pytest.mark.parametrize("parameters", [1, 7, 63, 64, 65, 3136, 797_696, 218_750_000])
def test_a_layers_matrix_fits_into_its_slice_and_almost_fills_it(parameters):
    rows, columns = shape(parameters)
    assert 0 < rows * columns <= parameters
    assert parameters < 64 or (rows % 8 == 0 and columns % 8 == 0)
    assert parameters < 10_000 or rows * columns > 0.9 * parameters


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_the_numbers_to_multiply_are_small_exact_and_differ_between_ranks(dtype):
    size = 4096
    write = function("rw_load_numbers", ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_uint64)
    with Buffer(size) as buffer:
        read = []
        for seed in (1, 1, 17):
            write(buffer.address, size, CUDA_TYPES[dtype], seed)
            read.append(values(ctypes.string_at(buffer.address, size), dtype))
    assert read[0] == read[1] != read[2]
    assert {value * 256 for value in read[0]} == set(range(-16, 16))


def values(data, dtype):
    if dtype == "bf16":
        words = struct.unpack(f"<{len(data) // 2}H", data)
        return [struct.unpack("<f", struct.pack("<I", word << 16))[0] for word in words]
    kind = FORMATS[dtype]
    return list(struct.unpack(f"<{len(data) // struct.calcsize(kind)}{kind}", data))


# ---- PyTorch's part, on the CPU ----


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="PyTorch is not installed: its model and hooks are not tested")


def trainer(torch, seed=1):
    return train_torch.Trainer(
        torch, train_torch.resnet50(torch), "fp32", 2, device="cpu", stream=None, seed=seed, pixels=32
    )


def test_torchs_model_has_the_tensors_that_are_planned_with(torch):
    model = train_torch.resnet50(torch)
    assert tuple(tuple(one.shape) for one in model.parameters()) == resnet50_shapes()
    assert trainer(torch).counts == RESNET50.gradients


@pytest.mark.parametrize("kind", ["25M", "1M", "tensor", "single"])
def test_a_bucket_is_complete_when_its_turn_comes_and_buckets_keep_their_order(torch, kind):
    buckets = cut(kind, RESNET50.gradients, 4, divisible=False)
    training, seen = trainer(torch), []
    training.use(buckets)
    training.step(lambda number, _stream: seen.append((number, part(training, buckets[number]).clone())))
    assert [number for number, _ in seen] == list(range(len(buckets)))
    assert all(torch.add_equality(then, part(training, buckets[number])) for number, then in seen)
    assert all(bool(part(training, bucket).any()) for bucket in buckets)


def part(training, bucket):
    return training.flat[bucket.first : bucket.end]


def test_steps_begin_with_no_gradient_and_ranks_have_different_ones(torch):
    one, other = trainer(torch), trainer(torch, seed=2)
    for training in (one, other):
        training.use(cut("single", RESNET50.gradients, 4, divisible=False))
        training.step(None)
    before = one.flat.clone()
    one.step(None)
    assert torch.allclose(before, one.flat, rtol=1e-3, atol=1e-5), "a second step is not added to the first"
    assert not torch.allclose(one.flat, other.flat, rtol=1e-3, atol=1e-5)


def test_a_torch_without_a_gpu_is_refused_with_the_reason():
    with pytest.raises(train_torch.CannotJudge, match="PyTorch"):
        train_torch.load()
