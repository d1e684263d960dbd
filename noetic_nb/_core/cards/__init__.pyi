from .card import Card as Card
from .card import Table as Table
from .card import card_of as card_of
from .on_classes import with_card as with_card
from .shown_forms import card_html as card_html
from .shown_forms import card_line as card_line
from .shown_forms import card_text as card_text
