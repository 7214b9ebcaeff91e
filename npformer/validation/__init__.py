"""The front door: what a signature asks of a call, and the words in which it is told what is wrong.

`signature` reads the annotations of a function and holds a call to them; `annotations` are arrays with their
shapes and numbers with their ranges; `validate` refuses one value, in our words; `rules` are the relations
between arguments, such as a number of heads that divides d_model. No equation stands here, and no check
anywhere else.
"""
