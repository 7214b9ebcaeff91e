"""The class run: a folder of submissions in, a table out, and no line of a student's beside the answers.

The files read in the order in which a submission passes them: `submissions` reads the file and `student` runs
it, in a process of its own behind `shelter`; `messages` crosses the pipe; `judging` asks the questions;
`grading` does so for a class; `reports` makes of the rows what a teacher needs. `assignments` writes
notebooks to hand out.
"""
