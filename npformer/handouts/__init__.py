"""Material for a class: slides, worksheets, exams, assignments, lesson copies, and a model on one page."""
