import noetic_nb.events
import noetic_nb.steps

from ._config.config import AgentConfig as AgentConfig
from ._config.config import Limits as Limits
from ._config.config import dump_config as dump_config
from ._config.config import load_config as load_config
from ._context.context import Context as Context
from ._context.reply import WARNING_CODES as WARNING_CODES
from ._context.reply import AgentReply as AgentReply
from ._context.reply import ReplyWarning as ReplyWarning
from ._durability.checkpoints import Checkpoints as Checkpoints
from ._execution.handle import Handle as Handle
from ._harness import AgentHarness as AgentHarness
from ._planning.make_plan import plan_turn as plan_turn
from ._planning.turn_plan import TurnPlan as TurnPlan
from ._threads.memory_view import MemoryView as MemoryView
from ._threads.turn_stream import TurnStream as TurnStream

TextRetracted = noetic_nb.events.TextRetracted
channel = noetic_nb.steps.channel
react = noetic_nb.steps.react
