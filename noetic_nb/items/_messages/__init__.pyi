from .formats import MessageFormat as MessageFormat
from .formats import decode_messages as decode_messages
from .formats import encode_messages as encode_messages
from .formats import recognise as recognise
from .message import Message as Message
