"""The player shows the worked example step by step. `compare` finds the first step that a port gets wrong."""

from npformer.player.compare import compare
from npformer.player.player_page import Player, play

__all__ = ["Player", "compare", "play"]
