"""How codings are kept with their labels, for the lists of codings by strangers."""

from functools import partial


def labels(kept, *names):
    """A decorator for each label, which puts (exercise, label, word, function) into the list.

    Of what stands beside the exercise the last is the word that a reply has to contain.
    """

    def keep(label, exercise, *told):
        def put(f):
            kept.append((exercise, label, told[-1] if told else "", f))
            return f

        return put

    return tuple(partial(keep, label) for label in names)


def each(keep, *functions):
    for f in functions:
        keep(f)
