"""What a teacher hands out: slides, worksheets, exams, assignments, the model on one page, lesson copies."""
