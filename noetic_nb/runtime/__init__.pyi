import noetic_nb.events
import noetic_nb.steps

from .config.config import AgentConfig as AgentConfig
from .config.config import dump_config as dump_config
from .config.config import load_config as load_config
from .config.limits import Limits as Limits
from .context.context import Context as Context
from .context.reply import WARNING_CODES as WARNING_CODES
from .context.reply import AgentReply as AgentReply
from .context.reply import ReplyWarning as ReplyWarning
from .durability.checkpoints import Checkpoints as Checkpoints
from .execution.handle import Handle as Handle
from .harness import AgentHarness as AgentHarness
from .planning.make_plan import plan_turn as plan_turn
from .planning.turn_plan import TurnPlan as TurnPlan
from .threads.memory_view import MemoryView as MemoryView
from .threads.turn_stream import TurnStream as TurnStream

TextRetracted = noetic_nb.events.TextRetracted
channel = noetic_nb.steps.channel
react = noetic_nb.steps.react
