"""The parts that inference engines have in common: a model as a list of kernels, and the steps of its thread.

A step schedules, uploads its inputs, runs the model, samples, and reads the tokens of the step before it: so the next
step is launched before the host knows the tokens of this one, as engines with asynchronous scheduling do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from profkit.simulate import cuda, events, graphs, memory
from profkit.simulate.chance import Chance
from profkit.simulate.host import Host, Instruction
from profkit.simulate.ops import GraphRun, Kernel, Stream
from profkit.simulate.plan import World

_FACTORS = 4096
STEP_POINTS = frozenset(
    {"schedule", "inputs", "after_forward", "sample", "step_end", "readback", "kernels", "profkit_ranges"}
)
"""What every engine of this file offers to faults."""

_LAYER = (
    ("rms_norm_kernel", "void vllm::rms_norm_kernel<c10::BFloat16, 8>(T1*, const T1*, const T1*, float, int, int)", 3),
    ("nvjet_qkv", "nvjet_tst_128x64_64x8_1x2_h_bz_TNT", 11),
    ("rotary_embedding_kernel", "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(const long*, T1*, int)", 2),
    ("reshape_and_cache_flash_kernel", "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>(const T1*, T2*)", 3),
    ("flash_fwd_splitkv_kernel", "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64>>(params)", 14),
    ("flash_fwd_splitkv_combine_kernel", "void flash::flash_fwd_splitkv_combine_kernel<4>(Flash_fwd_params)", 4),
    ("nvjet_out", "nvjet_tst_64x64_64x16_4x1_v_bz_splitK_TNT", 8),
    ("fused_add_rms_norm_kernel", "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(T1*, T1*, const T1*)", 3),
    ("nvjet_gate_up", "nvjet_tst_128x128_64x6_2x1_v_bz_TNN", 18),
    ("act_and_mul_kernel", "void vllm::act_and_mul_kernel<c10::BFloat16, silu>(T1*, const T1*, int)", 3),
    ("nvjet_down", "nvjet_tst_64x128_64x8_1x4_h_bz_splitK_TNT", 13),
)
_BEFORE_ALL_REDUCE = ("nvjet_out", "nvjet_down")
_SAMPLE = (
    ("nvjet_head", "nvjet_tst_320x128_64x3_1x2_h_bz_coopB_TNN", 60),
    ("cunn_SoftMaxForward", "void at::native::cunn_SoftMaxForward<4, float, float, float>(T4*, const T2*, int)", 11),
    ("reduce_kernel", "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, ArgMaxOps<float>>>(T3)", 8),
)
ALL_REDUCE = Kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", (16, 1, 1), (544, 1, 1), 96, 82240, 12)  # fmt: skip
SAMPLER = Kernel("triton_poi_fused_index_select_0", "triton_poi_fused_index_select_0", (4, 1, 1), (128, 1, 1), 22)
DEQUANTISE = Kernel("void dequantize_int8_kernel<__nv_bfloat16>(const signed char*, const float*, T1*, int)",
                    "dequantize_int8_kernel")  # fmt: skip


@dataclass(frozen=True)
class Work:
    """A kernel of the model: its usual length in ns, and a number that its random factor belongs to."""

    kernel: Kernel
    dur: int
    key: int
    layer: int
    collective: bool = False

    @property
    def product(self) -> bool:
        """Whether it is a matrix product."""
        return self.kernel.short.startswith("nvjet")


class Model:
    """The kernels of a forward pass and of sampling, with their lengths; ``parallel``: over several ranks."""

    def __init__(self, chance: Chance, layers: int, unit_ns: float, parallel: bool = False) -> None:
        self.layers = layers
        self.forward = []
        for layer in range(layers):
            for i, (short, name, units) in enumerate(_LAYER):
                key = layer * len(_LAYER) + i
                self.forward.append(Work(_kernel(short, name), max(int(units * unit_ns), 800), key, layer))
                if parallel and short in _BEFORE_ALL_REDUCE:
                    self.forward.append(Work(ALL_REDUCE, 0, 20_000 + key, layer, collective=True))
        self.sampling = [
            Work(_kernel(short, name), max(int(units * unit_ns), 800), 3000 + i, -1)
            for i, (short, name, units) in enumerate(_SAMPLE)
        ]
        self._factors = [int(f * 1024) for f in chance.factors("kernel lengths", _FACTORS, 0.05)]

    @property
    def forward_ns(self) -> int:
        return sum(work.dur for work in self.forward)

    def durs(self, works: list[Work], step: int, factor: float = 1.0) -> list[int]:
        """Lengths of this step's kernels, ns."""
        table, shift = self._factors, step * 1531
        if factor != 1.0:
            return [int(w.dur * factor) * table[(w.key + shift) & (_FACTORS - 1)] >> 10 for w in works]
        return [w.dur * table[(w.key + shift) & (_FACTORS - 1)] >> 10 for w in works]


def _kernel(short: str, name: str) -> Kernel:
    return Kernel(name, short, (132, 1, 1), (256, 1, 1), 64 + len(short) % 5 * 16, 0)


class Engine:
    """One thread that runs one model on one stream. ``style``: profkit, vllm or none, the ranges that it makes."""

    def __init__(self, world: World, host: Host, model: Model, dispatch_ns: int, batch: int, stream: Stream) -> None:
        self.world = world
        self.host = host
        self.model = model
        self.dispatch_ns = dispatch_ns
        self.batch = batch
        self.stream = stream
        self.style = str(world.settings.get("style", "profkit"))
        self.schedule_ns = 0
        self.detokenize_ns = 0
        self.kernels = list(model.forward)
        if (change := world.instead("kernels")) is not None:
            self.kernels = change[1](change[0], self.kernels)
        self.pdl = False
        """Matrix products are launched as programmatic dependents."""
        self.graph: graphs.Graph | None = None
        self.whole = False
        self._tokens = [events.Event(), events.Event()]
        self._work = world.chance.child(f"{host.name}/{host.process.pid}").stream("work")
        self._work_factors = [int(self._work.lognormvariate(0.0, 0.12) * 1024) for _ in range(_FACTORS)]

    @property
    def null_stream(self) -> Stream:
        """The legacy default stream of the process, on which calls without a stream work."""
        return self.host.process.default

    def begin(self) -> Iterator[Instruction]:
        """What comes before the first work of the device."""
        yield from self.world.point("prepare", self, 0)

    @contextmanager
    def stage(self, name: str, payload: int = -1) -> Iterator[None]:
        """A profkit range around the body, where the engine makes them."""
        if self.style != "profkit":
            yield
            return
        self.host.push(name, payload=payload)
        yield
        self.host.pop()

    @contextmanager
    def annotation(self, name: str) -> Iterator[None]:
        """A range as vLLM makes them, where the engine is of that style."""
        if self.style != "vllm":
            yield
            return
        self.host.push(name, domain="")
        yield
        self.host.pop()

    def own(self, nominal: int, step: int, key: int) -> int:
        """Length of a piece of own work in this step, ns."""
        return nominal * self._work_factors[(step * 977 + key) & (_FACTORS - 1)] >> 10

    # The model

    def eager(self, step: int, free: bool = False, factor: float = 1.0) -> Iterator[Instruction]:
        """Launch the kernels of a forward pass one by one; ``free``: without what the launches cost."""
        stream, launch = self.stream, cuda.launch
        factors, dispatch = self._work_factors, self.dispatch_ns
        shift, pdl = step * 977 + 100, self.pdl
        layered = self.world.has("layer")
        chain = GraphRun(0, 0, -1, False)
        layer = 0
        for work, dur in zip(self.kernels, self.model.durs(self.kernels, step, factor), strict=True):
            if layered and work.layer != layer:
                layer = work.layer
                yield from self.world.point("layer", self, step)
            if work.collective:
                yield from self._all_reduce(work, step)
            elif free:
                yield cuda.launch_free(stream, work.kernel, dur, chain)
            else:
                after = dispatch * factors[(work.key + shift) & (_FACTORS - 1)] >> 10
                yield launch(stream, work.kernel, dur, after, pdl and work.product)

    def _all_reduce(self, work: Work, step: int) -> Iterator[Instruction]:
        """This rank's part of a collective of the model."""
        yield from self.world.point("before_collective", self, step)
        ranks = len(self.world.simulation.devices)
        meeting = self.world.meeting((step, work.key), ranks, self.batch << 14)
        yield cuda.collective(self.stream, work.kernel, meeting, self.own(self.dispatch_ns, step, work.key))

    def replay(self, step: int) -> Iterator[Instruction]:
        """Launch the graph of a forward pass."""
        assert self.graph is not None
        durs = self.model.durs(self.kernels, step)
        yield graphs.launch_graph(self.stream, self.graph, durs, self.own(4 * self.dispatch_ns, step, 7))

    def capture(self) -> Iterator[Instruction]:
        """Capture the forward pass and instantiate it."""
        stream = self.stream
        yield graphs.begin_capture(stream, self.dispatch_ns)
        for work in self.kernels:
            yield cuda.launch(stream, work.kernel, work.dur, self.dispatch_ns // 2)
        yield graphs.end_capture(stream)
        graph = self.host.value
        yield graphs.instantiate(graph, self.whole, self.dispatch_ns)
        self.graph = graph

    def forward(self, step: int) -> Iterator[Instruction]:
        """A forward pass, as a replay where there is a graph."""
        change = self.world.instead("forward")
        if change is not None:
            yield from change[1](change[0], self, step)
        elif self.graph is not None:
            yield from self.replay(step)
        else:
            yield from self.eager(step)

    # The step

    def decode_step(self, step: int) -> Iterator[Instruction]:
        """One decoding step."""
        self.host.begin_step("decode")
        with self.annotation(f"execute_context_0(0)_generation_{self.batch}({self.batch})"):
            yield from self._schedule(step)
            yield from self._decode(step)
        yield from self._deliver(step)

    def prefill_step(self, step: int, tokens: int) -> Iterator[Instruction]:
        """A step for one new prompt."""
        self.host.begin_step("prefill")
        with self.annotation(f"execute_context_1({tokens})_generation_0(0)"):
            yield from self._schedule(step)
            yield from self._prefill(step, tokens)

    def mixed_step(self, step: int, tokens: int) -> Iterator[Instruction]:
        """A step for one new prompt and for all sequences that are being decoded."""
        self.host.begin_step("mixed")
        with self.annotation(f"execute_context_1({tokens})_generation_{self.batch}({self.batch})"):
            yield from self._schedule(step)
            yield from self._prefill(step, tokens)
            yield from self._decode(step)
        yield from self._deliver(step)

    def _schedule(self, step: int) -> Iterator[Instruction]:
        if self.schedule_ns:
            with self.stage("schedule", self.batch):
                yield self.host.work(self.own(self.schedule_ns, step, 1))
        yield from self.world.point("schedule", self, step)

    def _decode(self, step: int) -> Iterator[Instruction]:
        with self.stage("decode", self.batch), self.annotation("gpu_model_runner: forward"):
            yield from self.inputs(step)
            self.host.begin_part(1)
            yield from self.forward(step)
            self.host.begin_part(2)
            yield from self.world.point("after_forward", self, step)
            with self.stage("sample", self.batch):
                yield from self.sample(step)

    def _deliver(self, step: int) -> Iterator[Instruction]:
        self.host.begin_part(3)
        with self.stage("detokenize", self.batch):
            yield self.host.work(self.own(self.detokenize_ns, step, 2))
        yield from self.world.point("step_end", self, step)

    def _prefill(self, step: int, tokens: int) -> Iterator[Instruction]:
        """The kernels of a decoding step, longer as there are more tokens."""
        with self.stage("prefill", tokens), self.annotation("gpu_model_runner: forward"):
            with self.stage("h2d", 8 * tokens):
                yield memory.copy_async(self.stream, memory.H2D, 8 * tokens, after=self.own(self.dispatch_ns, step, 3))
            yield from self.eager(step, factor=1 + tokens / 512)
            with self.stage("sample", 1):
                yield from self._sampling_kernels(step)
                yield from self.readback(step)

    def inputs(self, step: int) -> Iterator[Instruction]:
        """Upload positions and block tables: a few bytes from pinned memory."""
        with self.stage("h2d", 8 * self.batch):
            yield memory.copy_async(self.stream, memory.H2D, 8 * self.batch, after=self.own(self.dispatch_ns, step, 3))
            yield from self.world.point("inputs", self, step)

    def sample(self, step: int) -> Iterator[Instruction]:
        """Sample on the device and bring the tokens to the host."""
        yield from self._sampling_kernels(step)
        yield from self.world.point("sample", self, step)
        change = self.world.instead("readback")
        if change is not None:
            yield from change[1](change[0], self, step)
        else:
            yield from self.readback(step)

    def _sampling_kernels(self, step: int) -> Iterator[Instruction]:
        sampling = self.model.sampling
        for i, (work, dur) in enumerate(zip(sampling, self.model.durs(sampling, step), strict=True)):
            yield cuda.launch(self.stream, work.kernel, dur, self.own(self.dispatch_ns, step, 10 + i))

    def readback(self, step: int) -> Iterator[Instruction]:
        """Copy this step's tokens into pinned memory and wait for those of the step before."""
        event, before = self._tokens[step & 1], self._tokens[1 - (step & 1)]
        yield memory.copy_async(self.stream, memory.D2H, 8 * self.batch, after=self.own(self.dispatch_ns, step, 20))
        yield events.record_event(self.stream, event)
        if step:
            yield events.synchronize_event(before)

    def finish(self) -> Iterator[Instruction]:
        """Wait for the last step."""
        yield events.synchronize_stream(self.stream, self.dispatch_ns)

    def decode(self, steps: int, first: int = 0) -> Iterator[Instruction]:
        """Several decoding steps, and what comes before the first."""
        if not first:
            yield from self.begin()
        for step in range(first, first + steps):
            yield from self.decode_step(step)
