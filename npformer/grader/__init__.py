"""A class: a folder of hand-ins becomes a table, marks and a page, and no line of a student's runs here.

In the order in which a hand-in passes them: `hand_ins` finds the files and `register` whose they are;
`reading` and `student` run them, in processes of their own behind `walls`; `frames` cross the pipe; `judge`
asks the questions; `run` does so for a class; `marks`, `page` and `alike` say what came of it.
"""

CONVENTION = (
    "The exercise pe.table is answered by the top-level name pe_table, a function or a value, or by an entry "
    'answers["pe.table"] of a dict. A line student = "Ada" chooses the numbers that belong to Ada.'
)
