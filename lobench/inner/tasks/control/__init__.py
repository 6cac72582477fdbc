"""Reinforcement learning: environments in pure JAX, and PPO and REINFORCE as inner tasks."""

from lobench.inner.tasks.control.cart_pole import CartPole
from lobench.inner.tasks.control.catch import Catch
from lobench.inner.tasks.control.environment import Environment, Step
from lobench.inner.tasks.control.foreign import GymnaxEnvironment
from lobench.inner.tasks.control.goal_family import GoalFamily
from lobench.inner.tasks.control.pendulum import Pendulum
from lobench.inner.tasks.control.ppo import PPO
from lobench.inner.tasks.control.reach_goals import ReachGoals
from lobench.inner.tasks.control.reinforce import REINFORCE
from lobench.inner.tasks.control.spaces import Box, Discrete

__all__ = [
    "PPO",
    "REINFORCE",
    "Box",
    "CartPole",
    "Catch",
    "Discrete",
    "Environment",
    "GoalFamily",
    "GymnaxEnvironment",
    "Pendulum",
    "ReachGoals",
    "Step",
]
