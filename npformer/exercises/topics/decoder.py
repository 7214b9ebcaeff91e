"""The decoder: who reads whom, what is known when a word is guessed, and what kept keys save."""

from npformer.exercises.task import RIGHT, Choice, Draw, Place, Posed, Truth, Wrong, numbers

S7_2 = Place("lesson 07, section 7.2", "07, section 7.2, Teacher forcing")
S7_3 = Place('"Attention Is All You Need", section 3.2.3', "07, section 7.3, The model")
S7_8 = Place("lesson 07, section 7.8", "07, section 7.8, One token at a time")

cross = Choice("decoder.cross", "decoder", 2, S7_3,
    task="In a decoder's cross-attention, where do queries, keys and values come from?",
    hint="Who asks, and who is asked?",
    question="Which text does a word that is being written have to look at?",
    options={
        "All three from the encoder's output: the source is read once more.": Wrong("CF-CROSS-ALL-SOURCE",
            "Then nothing of the words that were written so far would enter."),
        "Queries from the decoder, keys and values from the encoder.": RIGHT,
        "Queries from the encoder, keys and values from the decoder's own words.": Wrong("CF-CROSS-TURNED",
            "Then the source would ask and the target would answer."),
    })


@numbers("decoder.cells", "decoder", 2, S7_3,
    task="The source has {S} words, the target {T}. How many scores has one head of the cross-attention?",
    hint="Every word of the target meets every word of the source.",
    question="How many queries are there, and how many keys does each meet?")
def cells(draw: Draw) -> Posed:
    """The cells of one head's scores in cross-attention."""
    S, T = draw.integer(7, 6, 30), draw.integer(5, 3, 30)
    return Posed({"S": S, "T": T}, S * T, {
        Wrong("CF-SQUARE-TARGET", "This is self-attention over the target's words."): T * T,
        Wrong("CF-SQUARE-SOURCE", "This is self-attention over the source's words."): S * S,
        Wrong("CF-LENGTHS-ADDED", "This grows in proportion to the two lengths."): S + T,
        Wrong("CF-BOTH-TEXTS", "This would be self-attention over both texts glued together."): (S + T) ** 2,
    })


@numbers("decoder.kept", "decoder", 3, S7_8,
    task="A decoder writes {t} words, one at a time, and keeps its keys and values. How many scores "
    "does one head of its self-attention compute in all?",
    hint="The first word meets one key, the second two.",
    question="How many keys does the newest word meet, itself included?")
def kept(draw: Draw) -> Posed:
    """The scores of one head that a decoder computes for t new words when it keeps its keys."""
    t = draw.integer(6, 4, 30)
    return Posed({"t": t}, t * (t + 1) // 2, {
        Wrong("CF-FULL-SQUARES", "This is what a decoder does that computes every row anew at each "
            "word."): sum(n * n for n in range(1, t + 1)),
        Wrong("CF-LAST-SQUARE", "This is a full square of scores; with kept keys each word adds one "
            "row."): t * t,
        Wrong("CF-ONE-SCORE-EACH", "This is one score for each token."): t,
        Wrong("CF-NOT-ITSELF", "This leaves out the scores of a token with itself."): t * (t - 1) // 2,
    })
forcing = Choice("decoder.forcing", "decoder", 2, S7_2,
    task="In training, the decoder is to say word t. What does it read?",
    hint="The right answer is known in training.",
    question="Which words are known before the word at t is guessed?",
    options={
        "The right words before t.": RIGHT,
        "The words that it has guessed so far, right or not.": Wrong("CF-OWN-GUESSES",
            "That is what it reads when it is used; in training the right words are at hand."),
        "The right words up to t, the one at t included.": Wrong("CF-PEEKING",
            "Then it would be given the word that it has to guess."),
    })
greedy = Truth("decoder.greedy", "decoder", 2, S7_8,
    task="Greedy decoding, the most probable word at each step, always finds the most probable sentence.",
    hint="Two steps, two words: 0.6 · 0.5 against 0.4 · 0.9.",
    question="Can a less probable first word lead to a more probable sentence?",
    right=False,
    wrong=Wrong("CF-GREEDY-IS-BEST",
        "0.6 · 0.5 is less than 0.4 · 0.9: the best first step need not begin the best sentence."))
