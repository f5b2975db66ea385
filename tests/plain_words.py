"""Phrases that make a reader stumble, for documents and source."""

import re

STUMBLES = re.compile(
    r"\b(?:(?:is|are|was|be) told|told (?:of|anew)|tells? of|whoever|who others reach|mended|anew"
    r"|what is no (?!longer)|of (?:its|their|our) own|nobody|somebody|wants|none of (?:ours|its)|no longer so"
    r"|lends?|of use|h[eo]lds? against|held against|takes? it for|on the way|into force|walls?"
    r"|(?:by|on) looking|(?:two|next) looks?|(?:two|with|of) blanks|from where to where"
    r"|the (?:page|version) before|(?:SQL|statements?) of (?:a )?callers?|functions? of yours"
    r"|as asked|for want of|apart from each other|if need be|ha(?:s|ve) to be|several ones|so as to"
    r"|changes? of (?:(?:a|an|all|each|every|its|the|this) )*(?:tables?|rows?|files?|schema|views?)"
    r"|limits? of (?:memory|rows)"
    r"|relation more)\b",
    re.IGNORECASE,
)
