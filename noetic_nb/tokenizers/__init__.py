"""Counters of tokens by name: a provider's own vocabulary, or one that learns from reported usage.

``get("gpt-4.1")`` needs the extra ``tokens``; the default estimate, `noetic_nb.tokens.estimate_tokens`, needs nothing.
"""

from noetic_nb.tokenizers.encoding_tokenizer import EncodingTokenizer
from noetic_nb.tokenizers.encodings import ENCODINGS, MODELS, Encoding
from noetic_nb.tokenizers.factors import Factors, Tally
from noetic_nb.tokenizers.framing import FRAMINGS, Framing, framing_of
from noetic_nb.tokenizers.learning import CalibratedTokenizer, TokenCalibration
from noetic_nb.tokenizers.named import as_tokenizer, calibrated, from_ranks, get

__all__ = [
    "ENCODINGS",
    "FRAMINGS",
    "MODELS",
    "CalibratedTokenizer",
    "Encoding",
    "EncodingTokenizer",
    "Factors",
    "Framing",
    "Tally",
    "TokenCalibration",
    "as_tokenizer",
    "calibrated",
    "framing_of",
    "from_ranks",
    "get",
]
