"""Adam in torch that counts its steps in a Python int, or in a tensor of each parameter."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["CountsInInts", "CountsInTensors"]


class CountsInInts(torch.optim.Optimizer):
    def __init__(self, params: Any, lr: float = 0.003) -> None:
        super().__init__(params, {"lr": lr, "betas": (0.9, 0.999)})

    def zero(self) -> Any:
        """Returns a counter of no steps."""
        return 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for param in group["params"]:
                state = self.state[param]
                if not state:
                    state.update(step=self.zero(), mean=torch.zeros_like(param), square=torch.zeros_like(param))
                state["step"] += 1
                count = float(state["step"])
                state["mean"].lerp_(param.grad, 1 - b1)
                state["square"].mul_(b2).addcmul_(param.grad, param.grad, value=1 - b2)
                scale = (state["square"] / (1 - b2**count)).sqrt_().add_(1e-8)
                param.addcdiv_(state["mean"], scale, value=-group["lr"] / (1 - b1**count))


class CountsInTensors(CountsInInts):
    def zero(self) -> Any:
        return torch.tensor(0.0)
