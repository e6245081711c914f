"""What the names of torch, the launchers and the standard library mean to this reader."""

from __future__ import annotations

import re


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


RANK_NAMES = frozenset({"rank", "global_rank", "world_rank", "dist_rank", "process_index", "proc_rank", "ddp_rank"})
LOCAL_NAMES = frozenset({"local_rank", "local_process_index", "localrank", "ddp_local_rank"})
WORLD_NAMES = frozenset({"world_size", "num_processes", "ddp_world_size"})
NODE_NAMES = frozenset({"node_rank", "machine_rank", "node_id", "nr", "node_index"})
FIRST_NAMES = _names(
    """
    is_main_process is_master is_main is_rank0 is_rank_0 is_rank_zero is_global_zero is_world_process_zero
    master_process is_master_process is_main_proc is_root is_first_rank is_chief main_process on_main_process
    """
)
LOCAL_FIRST_NAMES = _names(
    """
    is_local_main_process is_local_master is_local_zero is_local_process_zero is_local_rank_zero
    """
)
RANK_CALLS = frozenset({"get_rank", "get_global_rank", "rank", "get_world_rank"})
LOCAL_CALLS = frozenset({"get_local_rank", "local_rank", "get_node_local_rank"})
WORLD_CALLS = frozenset({"get_world_size", "world_size"})

RANK_VARIABLES = _names(
    """
    RANK SLURM_PROCID OMPI_COMM_WORLD_RANK PMI_RANK PMIX_RANK MV2_COMM_WORLD_RANK
    """
)
LOCAL_VARIABLES = _names(
    """
    LOCAL_RANK SLURM_LOCALID OMPI_COMM_WORLD_LOCAL_RANK MPI_LOCALRANKID MV2_COMM_WORLD_LOCAL_RANK
    """
)
WORLD_VARIABLES = frozenset({"WORLD_SIZE", "SLURM_NTASKS", "SLURM_NPROCS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
NODE_VARIABLES = frozenset({"GROUP_RANK", "NODE_RANK", "SLURM_NODEID"})
TORCHRUN_VARIABLES = _names(
    """
    RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT
    """
)

DIST = "torch.distributed"
DIST_PREFIXES = (f"{DIST}.distributed_c10d.", f"{DIST}.nn.functional.", f"{DIST}.nn.", f"{DIST}.", "deepspeed.comm.")

# collective -> position of its `group` argument, -1 where it has none or is always about everybody
COLLECTIVES: dict[str, int] = {
    "all_reduce": 2, "all_reduce_coalesced": 2, "broadcast": 2, "broadcast_object_list": 2, "all_gather": 2,
    "all_gather_object": 2, "all_gather_into_tensor": 2, "all_gather_coalesced": 2, "gather": 3, "gather_object": 3,
    "scatter": 3, "scatter_object_list": 3, "reduce": 3, "reduce_scatter": 3, "reduce_scatter_tensor": 3,
    "all_to_all": 2, "all_to_all_single": 4, "barrier": 0, "monitored_barrier": 0, "new_group": -1, "new_subgroups": -1,
    "new_subgroups_by_enumeration": -1, "init_process_group": -1, "_all_gather_base": 2, "_reduce_scatter_base": 3,
}  # fmt: skip
DISTINCT = _names(
    """
    all_gather_object broadcast_object_list gather_object scatter_object_list monitored_barrier
    all_gather_into_tensor reduce_scatter_tensor all_to_all_single wait_for_everyone gather_for_metrics
    """
)
"""Method names that mean a collective whatever object they are called on."""
COMMUNICATORS = re.compile(r"(?:^|[._])(?:dist|distributed|fabric|strategy|accelerator|comm)$")

COLLECTIVE_PATHS = frozenset(
    {
        f"{DIST}.checkpoint.save", f"{DIST}.checkpoint.load", f"{DIST}.checkpoint.async_save",
        f"{DIST}.checkpoint.save_state_dict", f"{DIST}.checkpoint.load_state_dict",
        f"{DIST}.checkpoint.state_dict.get_model_state_dict", f"{DIST}.checkpoint.state_dict.get_state_dict",
        f"{DIST}.checkpoint.state_dict.get_optimizer_state_dict",
        f"{DIST}.checkpoint.state_dict.set_model_state_dict", f"{DIST}.checkpoint.state_dict.set_state_dict",
        f"{DIST}.device_mesh.init_device_mesh", f"{DIST}.init_device_mesh",
        "deepspeed.initialize", "deepspeed.init_distributed",
        "accelerate.utils.wait_for_everyone", "accelerate.utils.gather_object", "accelerate.utils.gather",
        "accelerate.utils.broadcast_object_list",
    }
)  # fmt: skip
STATE_OF_A_MODEL = f"{DIST}.checkpoint.state_dict."
"""These communicate only where the model is sharded."""
DDP_PATHS = _names(
    """
    torch.nn.parallel.DistributedDataParallel torch.nn.parallel.distributed.DistributedDataParallel
    """
)
FSDP_PATHS = frozenset(
    {f"{DIST}.fsdp.FullyShardedDataParallel", f"{DIST}.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel"}
)

ACCELERATOR_METHODS = _names(
    """
    wait_for_everyone gather gather_for_metrics reduce pad_across_processes prepare
    """
)
FABRIC_METHODS = _names(
    """
    barrier all_gather all_reduce broadcast setup setup_module save load
    """
)
TRAINER_METHODS = frozenset({"fit", "validate", "test", "predict", "save_checkpoint"})
MODULE_METHODS = frozenset({"all_gather"})
ENGINE_METHODS = frozenset({"save_checkpoint", "load_checkpoint"})

LIGHTNING_TRAINERS = _names(
    """
    pytorch_lightning.Trainer lightning.Trainer lightning.pytorch.Trainer lightning.pytorch.trainer.Trainer
    pytorch_lightning.trainer.Trainer
    """
)
FABRICS = frozenset({"lightning.Fabric", "lightning.fabric.Fabric", "lightning_fabric.Fabric"})
ACCELERATORS = frozenset({"accelerate.Accelerator", "accelerate.accelerator.Accelerator"})
MODULES = _names(
    """
    pytorch_lightning.LightningModule lightning.LightningModule lightning.pytorch.LightningModule
    pytorch_lightning.core.LightningModule
    """
)
DEVICE_KEEPERS = (
    "accelerate.",
    "lightning",
    "pytorch_lightning.",
    "deepspeed.",
    "transformers.",
    "ray.train",
    "horovod",
)
"""Libraries that choose a device for their process themselves."""

SPAWN_PATHS = _names(
    """
    torch.multiprocessing.spawn torch.multiprocessing.spawn.spawn torch.multiprocessing.start_processes
    """
)
NOTEBOOK_PATHS = frozenset({"accelerate.notebook_launcher", "accelerate.launchers.notebook_launcher"})
ELASTIC_PATHS = frozenset(
    {f"{DIST}.launcher.api.elastic_launch", f"{DIST}.launcher.elastic_launch", f"{DIST}.launcher.api.launch_agent"}
)
TORCHRUN_PATHS = frozenset({f"{DIST}.run.main", f"{DIST}.run.run", f"{DIST}.launch.main"})

KNOWN_ROOTS = _names(
    """
    torch torchvision torchaudio numpy scipy pandas tqdm transformers datasets accelerate lightning
    pytorch_lightning lightning_fabric deepspeed wandb PIL cv2 sklearn matplotlib tensorboard tensorboardX yaml
    hydra omegaconf einops timm ray apex psutil rich evaluate peft safetensors huggingface_hub torchmetrics flask
    fastapi gradio pytest fire click typer absl termcolor packaging requests builtins
    """
)
"""Libraries that neither call a collective of ours nor choose a device unless this reader knows it."""

THREADS = frozenset({"threading.Thread", "threading.Timer", "multiprocessing.dummy.Process"})
THREAD_POOLS = _names(
    """
    concurrent.futures.ThreadPoolExecutor concurrent.futures.thread.ThreadPoolExecutor
    multiprocessing.pool.ThreadPool multiprocessing.dummy.Pool
    """
)
PROCESS_POOLS = frozenset({"concurrent.futures.ProcessPoolExecutor", "concurrent.futures.process.ProcessPoolExecutor"})
QT_THREAD = re.compile(r"(?:^|\.)QThread$")
HANDLER_DECORATORS = frozenset({"route", "get", "post", "put", "websocket_route"})
SERVERS = re.compile(r"(?:^|\.)(?:Flask|Blueprint|FastAPI|APIRouter|Sanic|Bottle)$")
BUTTONS = frozenset({"click", "submit", "add_task"})
"""Methods of Gradio components and of FastAPI's BackgroundTasks that run their function in a thread pool."""

ASKS_CUDA = frozenset({"is_available", "device_count"})
USES_CUDA = _names(
    """
    set_device current_device get_device_name get_device_properties get_device_capability synchronize
    memory_allocated memory_reserved max_memory_allocated max_memory_reserved mem_get_info init current_stream
    default_stream can_device_access_peer memory_summary current_blas_handle reset_peak_memory_stats ipc_collect
    get_rng_state is_bf16_supported
    """
)
TENSOR_MAKERS = _names(
    """
    tensor zeros ones empty rand randn full arange randint eye linspace as_tensor
    """
)

FREE_CALLS = re.compile(
    r"(?:^|\.)_?(?:get_|find_|pick_)?(?:free|unused|open|available)_(?:tcp_)?port$|portpicker\.pick_unused_port$|get_open_port$"
)
RANDOM_PATHS = frozenset({"random.randint", "random.randrange", "random.choice", "numpy.random.randint"})

INTERESTING = _names(
    """
    DistributedDataParallel FullyShardedDataParallel fully_shard cuda to device environ getenv putenv Thread Timer
    ThreadPoolExecutor ThreadPool Pool ProcessPoolExecutor Process fork spawn start_processes set_start_method
    get_context notebook_launcher elastic_launch launch_agent to_thread run_in_executor start submit starmap
    apply_async apply start_new_thread getsockname bind Trainer Fabric Accelerator init_distributed initialize
    init_device_mesh get_model_state_dict get_state_dict async_save save_state_dict load_state_dict state_dict
    launch sync_dist partial wraps pick_unused_port get_free_port find_free_port free_port randint is_initialized
    is_available __enter__
    """
).union(
    RANK_NAMES,
    LOCAL_NAMES,
    WORLD_NAMES,
    NODE_NAMES,
    FIRST_NAMES,
    LOCAL_FIRST_NAMES,
    RANK_CALLS,
    LOCAL_CALLS,
    COLLECTIVES,
    DISTINCT,
    ACCELERATOR_METHODS,
    FABRIC_METHODS,
    TRAINER_METHODS,
    ENGINE_METHODS,
    USES_CUDA,
    ASKS_CUDA,
)
"""Words without which a function cannot matter here; names of the user's functions that hold one are added to these."""


def collective(path: str) -> str | None:
    """The collective an external dotted path names, or None."""
    for prefix in DIST_PREFIXES:
        if path.startswith(prefix):
            name = path[len(prefix) :]
            return name if name in COLLECTIVES else None
    return None
