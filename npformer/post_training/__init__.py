"""Post-training: LoRA, the loss on answers, DPO and GRPO. Each forward function has its backward function."""

from npformer.post_training.adapter import (
    BlockAdapter,
    adapter_gradients,
    init_adapter,
    load_adapter,
    merge_adapter,
    save_adapter,
)
from npformer.post_training.answer_targets import answer_targets
from npformer.post_training.clipped_policy import clipped_policy_backward, clipped_policy_forward
from npformer.post_training.dpo import dpo_backward, dpo_forward
from npformer.post_training.group_advantages import group_advantages
from npformer.post_training.grpo import grpo_backward, grpo_forward
from npformer.post_training.kl_penalty import kl_penalty_backward, kl_penalty_forward
from npformer.post_training.lora import LoRAParams, init_lora, lora_backward, lora_forward
from npformer.post_training.policy_gradient import policy_gradient_backward, policy_gradient_forward
from npformer.post_training.token_log_probs import token_log_probs_backward, token_log_probs_forward

__all__ = [
    "BlockAdapter", "LoRAParams", "adapter_gradients", "answer_targets", "clipped_policy_backward",
    "clipped_policy_forward", "dpo_backward", "dpo_forward", "group_advantages", "grpo_backward",
    "grpo_forward", "init_adapter", "init_lora", "kl_penalty_backward", "kl_penalty_forward", "load_adapter",
    "lora_backward", "lora_forward", "merge_adapter", "policy_gradient_backward", "policy_gradient_forward",
    "save_adapter", "token_log_probs_backward", "token_log_probs_forward",
]  # fmt: skip
