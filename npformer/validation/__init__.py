"""Argument validation: checks of every public call against its signature, and the error messages.

- `signature` has the decorator `checked`, which checks the arguments of every call of a function.
- `annotations` has the annotations for signatures: arrays with shapes, numbers with ranges.
- `annotation_reader` turns an annotation into a `Rule`, and a signature into a list of rules.
- `call` has `Rule` (how one value is checked) and `Call` (the sizes of the arguments in one call).
- `checks` has one function per kind of check. Such a function raises the error with the final message.
- `rules` has relations between arguments that several modules use, for example "each id is below vocab_size".
  A relation that belongs to one operation is in the module of that operation.
- `cache_key` describes a call by a key. A call with the key of an earlier accepted call is not checked again.
- `output_files` checks paths of output files and writes the files.

At most four functions run between a call and its error message: the wrapper that `checked` makes,
`check_call`, the check of a rule, and a function of `checks`. By default, the traceback of a rejected call
ends in the wrapper, so the package adds only one frame below the line of the caller. With the environment
variable NPFORMER_FULL_TRACEBACK=1, the traceback shows all these functions.
"""
